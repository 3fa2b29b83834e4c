"""Prover of the labels of gymnasium environments: by replay from ``reset`` alone.

The key is all attributes of the environment, or its observation where the level says so (``gym.key=observation``).
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar, cast

import numpy as np
from pydantic import Field

from ...core.errors import CertifyError, LevelError, NotAllowedError
from ...core.plugins import Settings
from ..base import Case, Proof, Prover, Verdict
from ..replay import ILLEGAL, MAX_STEPS, WON, Game, prove
from .advice import naming_settings, raised
from .game import Level, level_keys
from .graph import IDLE
from .packages import blind, package_of
from .worlds import hashable


class ReplaySettings(Settings):
    """Settings of the prover."""

    max_steps: int = Field(default=MAX_STEPS, ge=1)
    """Maximum number of steps of the environment per level; larger levels stay undecided."""


def _own_mode(level: Level, game: Game, actions: Sequence[str]) -> str | None:
    """Replay a part of an episode, its clock running, and return the first mode whose predicate fits its last step."""
    game.play(actions)
    wasted = game.illegal | {turn for turn, name in enumerate(actions) if name == IDLE}
    if len(actions) - 1 in wasted:
        return None
    game.env.reset(seed=level.seed, options=game.options)
    steps = [game.env.step(copy(game.actions[name])) for turn, name in enumerate(actions) if turn not in wasted]
    return next(
        (mode for mode, fits in level.predicates().items() if fits(game.env, float(steps[-1][1]), steps[-1][4])), None
    )


def _allows(level: Level, env: Any, name: str, info: Mapping[str, Any]) -> bool:
    """Return whether the mask in ``info`` allows an action, by code of the prover's own."""
    mask = info.get("action_mask") if info and package_of(env).masks else None
    if mask is None:
        return True
    space, value = env.action_space, level.actions[name]
    if not isinstance(value, list):
        return bool(mask[value - int(space.start)])
    starts = space.start if hasattr(space, "start") else [part.start for part in space.spaces]
    places = [number - int(start) for number, start in zip(value, starts, strict=True)]
    if not isinstance(mask, tuple | list):
        return bool(mask[tuple(places)])
    return all(bool(part[place]) for part, place in zip(mask, places, strict=True))


def _text(value: Any) -> str:
    """Return a value of ``info`` in the notation of the rule ``info.KEY==VALUE``."""
    value = value.tolist() if hasattr(value, "tolist") else getattr(value, "name", value)
    if isinstance(value, float):
        value = int(value) if value.is_integer() else round(value, 9)
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value)) or "empty"
    return " ".join(str(value).split())


@dataclass
class _Success:
    """Rule of success of a level, implemented apart from the search, with what the played steps showed."""

    level: Level
    flags: set[str] = field(default_factory=set[str])
    """Keys of ``info`` that may be flags of success."""
    goals: set[float] = field(default_factory=set[float])
    """Positive rewards of steps that end the episode."""
    on_the_way: set[float] = field(default_factory=set[float])
    """Positive rewards of steps that do not."""
    ends: set[bool] = field(default_factory=set[bool])
    """Whether success ended the episode."""

    @cached_property
    def _function(self) -> Any:
        module, _, name = self.level.success.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, env: Any, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        """Return whether a step succeeded."""
        self.flags |= {"success", "is_success"} & set(info or ())
        if reward > 0:
            (self.goals if terminated else self.on_the_way).add(reward)
        won = self._won(env, reward, terminated, info)
        if won:
            self.ends.add(terminated)
        return won

    def _won(self, env: Any, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        rule = self.level.success
        if rule.startswith(("info.", "terminated and info.")):
            return self._says(info) and (terminated or rule.startswith("info."))
        if rule == "goal-reward":
            return terminated and reward > 0
        if ":" in rule:
            return bool(self._function(env, reward, terminated, info))
        *first, last = rule.split(" and ")
        if last == "terminated":
            return terminated
        name, _, least = last.partition(">")
        if name != "reward" or first not in ([], ["terminated"]):
            raise CertifyError(f"the level names no rule of success that can be proved ({rule!r})")
        enough = reward >= float(least[1:]) if least.startswith("=") else reward > float(least)
        return enough and (terminated or not first)

    def at_start(self, info: Mapping[str, Any]) -> bool:
        """Return whether ``info`` of the start is a success under the rule; False for rules without a flag."""
        return self.level.success.startswith("info.") and self._says(info)

    def _says(self, info: Mapping[str, Any]) -> bool:
        """Return whether ``info`` has the value that the rule names."""
        key, equals, text = self.level.success.removeprefix("terminated and ")[5:].partition("==")
        value, missing = cast(Any, info), object()
        for part in [key] if key in info else key.split("."):
            value = value.get(part, missing) if isinstance(value, Mapping) else getattr(value, part, missing)
        if value is not missing:
            self.flags.add(self.level.success)
        if equals:
            return ("nothing" if value is missing else _text(value)) == text
        if type(value) not in (bool, np.bool_) and value is not missing:
            raise CertifyError(f"{self.level.success} is of type {type(value).__name__}, expected a bool")
        return value is not missing and bool(value)

    def contradiction(self, first: Sequence[Any]) -> str | None:
        """Return what of the level contradicts the rule; ``first`` are the successors of its start."""
        rule, (steps, ending) = self.level.success, self.level.success_steps
        goals = sorted(self.goals)
        if rule == "goal-reward" and (self.on_the_way or self.flags or any(b - a > 1e-9 for a, b in pairwise(goals))):
            return "a step that does not end the episode pays, ends pay differently, or info says what success is"
        if rule.startswith("info.") and not self.flags and self.goals:
            return f"{rule} is never set, but ends pay a positive reward"
        if steps and ending in (0, steps) and self.ends - {ending > 0}:
            return "success ends the episode, unlike in the first levels" if not ending else "success does not end it"
        outcomes = {*first} - {ILLEGAL}
        return "every first action succeeds" if outcomes == {WON} else None


class GymProver(Prover):
    """Prover of any environment; it keeps the last level, because rollouts of a level are proved in succession."""

    config_type: ClassVar[type[Settings]] = ReplaySettings
    settings: ReplaySettings

    def __init__(self, solver_config: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Create a prover; it ignores the solver's settings, because exact labels do not depend on them."""
        super().__init__(solver_config, settings)
        self._game = lru_cache(maxsize=1)(self._make)

    @classmethod
    def quick(cls) -> Settings:
        """Return settings that limit the time per level to about a second."""
        return ReplaySettings(max_steps=50_000)

    def _make(self, text: str) -> Game:
        level = Level.read(text)
        game = level.game()
        by_observation, success = level.key == "observation", _Success(level)
        if not by_observation:
            blind(game.env)
        return Game(
            game.env,
            {name: game.action(name) for name in level.actions},
            key=hashable if by_observation else level_keys(level, game.env, whole=True),
            by_observation=by_observation,
            won=success,
            won_at_start=success.at_start,
            allows=partial(_allows, level, game.env),
            full=level_keys(level, game.env, whole=True) if level.illegal == "invalid" else None,
            seed=level.seed,
            options=game.options,
            clock=level.clock,
            idle=IDLE,
            turns=None if level.turns is None else level.turns + 1,
            max_steps=self.settings.max_steps,
        )

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors."""
        try:
            with naming_settings():
                return self._prove(case, verdict)
        except NotAllowedError:
            raise
        except CertifyError as error:
            return Proof(undecided=str(error))
        except LevelError as error:
            return Proof((f"could not be re-proved: {error}",))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code
            return Proof((f"the environment {raised(error)}",))

    def _prove(self, case: Case, verdict: Verdict) -> Proof:
        level, game = Level.read(case.initial_state), self._game(case.initial_state)
        if level.failure_modes and 0 <= verdict.pivot_step < len(case.actions):
            mode = _own_mode(level, game, case.actions[: verdict.pivot_step + 1])
            if mode is not None:
                if verdict.failure_mode != mode or len(verdict.secondary_modes) != 1:
                    stored = (verdict.failure_mode, *verdict.secondary_modes)
                    return Proof((f"the modes are {stored}, expected {mode!r} and that of the search",))
                verdict = replace(verdict, failure_mode=verdict.secondary_modes[0], secondary_modes=())
        proof = prove(game, case.actions, case.horizon, verdict)
        if proof.undecided or not isinstance(game.won, _Success):
            return proof
        if reason := game.won.contradiction(game.following(game.play(())[0])):
            return Proof(
                (*proof.problems, f"the rule of success ({level.success}) does not hold in the level: {reason}")
            )
        return proof
