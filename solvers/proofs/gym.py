"""Prover of the labels of gymnasium environments: by replay from ``reset`` alone.

The key is all attributes of the environment, or its observation where the level says so (``gym.key=observation``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar

from pydantic import Field

from ...errors import CertifyError, LevelError
from ...plugins import Settings
from ..base import Case, Proof, Prover, Verdict
from ..closure.advice import naming_settings, raised
from ..closure.game import IDLE, Level, level_keys, succeeds
from ..closure.packages import blind
from ..closure.worlds import hashable
from .replay import MAX_STEPS, Game, prove


class ReplaySettings(Settings):
    """Settings of the prover."""

    max_steps: int = Field(default=MAX_STEPS, ge=1)
    """Maximum number of steps of the environment per level; larger levels stay undecided."""


def _own_mode(level: Level, game: Game, actions: Sequence[str]) -> str | None:
    """Replay a part of an episode, its clock running, and return the first mode whose predicate fits its last step."""
    if actions[-1] == IDLE:
        return None
    game.env.reset(seed=level.seed, options=game.options)
    steps = [game.env.step(game.actions[name]) for name in actions if name != IDLE and name in game.actions]
    return next(
        (mode for mode, fits in level.predicates().items() if fits(game.env, float(steps[-1][1]), steps[-1][4])), None
    )


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
        by_observation = level.key == "observation"
        if not by_observation:
            blind(game.env)
        return Game(
            game.env,
            {name: game.action(name) for name in level.actions},
            key=hashable if by_observation else level_keys(level, game.env, whole=True),
            by_observation=by_observation,
            won=partial(succeeds, level),
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
        return prove(game, case.actions, case.horizon, verdict)
