"""One level of a gymnasium environment as text, and what its steps mean: actions, state key, success, clock.

The text is JSON and complete: with the package of the environment, it is enough to play the level again.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Self

import gymnasium
from pydantic import ConfigDict, Field, ValidationError, field_validator

from ...errors import CertifyError, LevelError
from ...identity import canonical_json
from ...plugins import WORD, Settings
from ..base import FAILURE_MODES
from .actions import allowed, member, named_actions
from .packages import PACKAGES, blind, package_of
from .state import counters, state_of
from .success import PREDICATE, check_rule, is_predicate
from .worlds import Illegal, hashable, naming_settings, raised

IDLE = "invalid"
"""Name of a turn without a usable action."""
FOREIGN: set[str] = set()
"""Environments outside of :data:`PACKAGES` that the settings of a run in this process name; levels may use them."""


class GameSettings(Settings):
    """Id of an environment, and how to read it."""

    id: str = "MiniGrid-DoorKey-5x5-v0"
    """Id that ``gymnasium.make`` knows."""
    package: str = ""
    """Module whose import registers the id; empty for gymnasium's own and for minigrid."""
    kwargs: dict[str, Any] = Field(default={})
    """Keyword arguments of the environment."""
    options: dict[str, Any] = Field(default={})
    """Options of ``reset``."""
    actions: dict[str, int | list[int]] = Field(default={})
    """Actions by the names that the agent uses; empty for the names of the package, else ``action_0`` and so on."""
    key: Literal["package", "state", "observation"] = "package"
    """State key: the package's own (all attributes of the environment if it has none), all attributes, or the
    observation."""
    success: str = ""
    """Rule of success: ``terminated``, ``reward>=X``, ``reward>X``, either after ``terminated and``, ``info.KEY`` (a
    bool), ``goal-reward``, or a predicate, ``module:function``, of environment, reward, ``terminated`` and ``info``.
    Empty for ``info.success`` or ``info.is_success`` where the environment sets one, else ``goal-reward``: a positive
    reward that nothing but ends of the episode pays."""
    illegal: Illegal = "refuse"
    """Meaning of a turn with an illegal action, one that ``info["action_mask"]`` excludes or that raises: ``refuse``
    ends a build before it starts; ``invalid`` counts it as a turn without an action."""
    failure_modes: dict[str, str] = Field(default={})
    """Failure modes of your own, each with a predicate, ``module:function``. The function gets the environment after
    the pivot action, the reward and ``info`` of that step, and returns whether the failure is of this mode. The first
    that does names the failure, and ``timeout`` or ``deadlock`` is then its secondary mode."""

    @field_validator("id")
    @classmethod
    def _plain(cls, value: str) -> str:
        if ":" in value:
            raise ValueError(f"found {value!r}, expected an id without a module; put the module into package")
        return value

    @field_validator("success")
    @classmethod
    def _rule(cls, value: str) -> str:
        return check_rule(value)

    @field_validator("failure_modes")
    @classmethod
    def _modes(cls, value: dict[str, str]) -> dict[str, str]:
        for name, function in value.items():
            if not WORD.fullmatch(name) or name in FAILURE_MODES:
                raise ValueError(f"found the mode {name!r}, expected a new lower-case word")
            if not PREDICATE.fullmatch(function):
                raise ValueError(f"found {function!r} for {name!r}, expected module:function")
        return value

    @property
    def module(self) -> str:
        """Module whose import registers the id; empty where none is needed."""
        return self.package or next((each.module for each in PACKAGES if self.id.startswith(each.prefixes)), "")

    @property
    def is_known(self) -> bool:
        """Whether the environment is one of :data:`PACKAGES`, which do nothing but play."""
        is_listed = any(self.id.startswith(each.prefixes) and each.module == self.module for each in PACKAGES)
        return is_listed and not self.functions

    @property
    def functions(self) -> dict[str, str]:
        """Functions of the user's that judge steps, by failure mode or ``gym.success``."""
        return self.failure_modes | ({"gym.success": self.success} if is_predicate(self.success) else {})

    @property
    def _code(self) -> str:
        """Name of everything whose code the level runs."""
        return canonical_json([self.module, self.id, self.functions])

    def admit(self) -> None:
        """Let levels of this process use the environment and its predicates, whatever their packages."""
        FOREIGN.add(self._code)

    def predicates(self) -> dict[str, Callable[[Any, float, Mapping[str, Any]], bool]]:
        """Return the functions that decide the failure modes of the settings, in their order.

        Raises:
            CertifyError: a module or a function is missing.
        """
        functions: dict[str, Callable[[Any, float, Mapping[str, Any]], bool]] = {}
        for mode, name in self.failure_modes.items():
            module, _, function = name.partition(":")
            try:
                functions[mode] = getattr(import_module(module), function)
            except (ImportError, AttributeError) as error:
                raise CertifyError(
                    f"gym.failure_modes: found {name!r} for {mode!r}, expected a function that can be imported; {error}"
                ) from error
        return functions

    def make(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Make the environment, without a limit on its time.

        Raises:
            CertifyError: it cannot be made; the message says what to install.
        """
        if not self.is_known and self._code not in FOREIGN:
            raise CertifyError(
                f"the level needs the environment {self.id!r} of {self.module or 'gymnasium'}, which no setting of "
                "this run names; look at it, then name it in gym.id"
            )
        try:
            if self.module:
                import_module(self.module)
            return gymnasium.make(
                self.id, max_episode_steps=-1, disable_env_checker=True, render_mode=render_mode, **self.kwargs
            )
        except (Exception, SystemExit) as error:  # foreign code
            raise CertifyError(
                f"gym.id={self.id!r} cannot be made: {raised(error)}; install its package (for "
                "MiniGrid and gymnasium's toy text: pip install 'pivot-vlm[gym]'), and set gym.package to the module "
                "that registers it"
            ) from error


class Level(GameSettings):
    """One level: the game, its seed, and the actions taken since its start."""

    model_config = ConfigDict(strict=True)

    seed: int = Field(ge=0)
    clock: tuple[str, ...] = Field(default=(), strict=False)
    """Attributes of the environment that count turns."""
    success_steps: tuple[int, int] = Field(default=(0, 0), strict=False)
    """Number of steps that succeed in the first levels of these settings, and of those that also end the episode."""
    taken: tuple[str, ...] = Field(default=(), strict=False)
    """Actions since the start; turns without a usable action are left out."""
    written: ClassVar[frozenset[str]] = frozenset({"id", "actions", "seed"})

    @field_validator("taken")
    @classmethod
    def _of_the_game(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > 10_000:
            raise ValueError(f"found {len(value)} actions, expected at most 10000")
        return value

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a level.

        Raises:
            LevelError: the text is not one.
        """
        try:
            level = cls.model_validate_json(text)
        except (ValidationError, ValueError, RecursionError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            where = ".".join(map(str, first["loc"]))
            raise LevelError(f"the gym level {where}: {first['msg']}; expected the JSON of a level") from error
        if unknown := [name for name in level.taken if name not in level.actions]:
            raise LevelError(f"the gym level takes {unknown[0]!r}, expected one of {', '.join(level.actions)}")
        return level

    def text(self) -> str:
        """Return the level as canonical JSON, without defaults."""
        fields = self.model_dump(mode="json")
        return canonical_json(
            {
                name: value
                for name, value in fields.items()
                if name in self.written or value != type(self).model_fields[name].get_default()
            }
        )

    @property
    def start(self) -> Self:
        """The level before any action."""
        return self.model_copy(update={"taken": ()}) if self.taken else self

    def game(self, render_mode: str | None = None) -> "Game":
        """Make the level's environment."""
        return Game(self.make(render_mode), self)


def close(env: Any) -> None:
    """Close an environment; what that raises decides nothing (some cannot be closed without pictures)."""
    with suppress(Exception):
        env.close()


def first_level(settings: GameSettings, seed: int) -> tuple[Level, Any]:
    """Return the level of a seed, with the names of its actions and its clock, and the environment.

    Raises:
        CertifyError: the environment cannot be made, or its actions cannot be listed.
    """
    env = settings.make()
    with naming_settings(f"gym.id={settings.id!r}: "):
        actions = named_actions(env, settings.actions)
    level = Level.model_validate(settings.model_dump() | {"actions": actions, "seed": seed})
    played = f"reset with seed {seed}"
    try:
        env.reset(seed=seed, options=level.options or None)
        played = f"a step in the level of seed {seed}"
        game = Game(env, level)
        members = [game.action(name) for name in actions]
        clock = counters(env, members, seed, game.options, game.mask, illegal=level.illegal == "invalid")
    except (Exception, SystemExit) as error:  # foreign code
        raise CertifyError(
            f"gym.id={settings.id!r}: {played} of {type(env.unwrapped).__name__} {raised(error)}; expected a level "
            "for every seed, and an answer to every action; if an action is illegal in a state, exclude it in "
            "info['action_mask'], or set gym.illegal=invalid; else repair the environment"
        ) from error
    return level.model_copy(update={"clock": clock}), env


@dataclass
class Game:
    """A level that can be played."""

    env: Any
    level: Level
    allowed: tuple[bool, ...] | None = None
    """Whether each action is allowed next; None if all are."""

    @property
    def options(self) -> dict[str, Any] | None:
        """Options of ``reset``."""
        return self.level.options or None

    def action(self, name: str) -> Any:
        """Return the member of the action space of a name."""
        return member(self.env.action_space, self.level.actions[name])

    def mask(self, info: Any) -> tuple[bool, ...] | None:
        """Return from ``info`` whether each action is allowed next; None if all are."""
        if not package_of(self.env).masks:
            return None
        return allowed(self.env.action_space, list(self.level.actions.values()), info)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Start the level and take the actions of its text; return observation and ``info``.

        Raises:
            LevelError: the episode ends before the last of them.
        """
        with self._staying():
            answer = self.env.reset(seed=self.level.seed, options=self.options)
        self.allowed = self.mask(answer[1])
        for step, name in enumerate(self.level.taken):
            played = self.step(name)
            if played is None:
                raise LevelError(f"the gym level takes the illegal action {name!r} at action {step}")
            observation, _, terminated, _, info = played
            if terminated and step < len(self.level.taken) - 1:
                raise LevelError(f"the gym level goes on after its end at action {step}")
            answer = observation, info
        return answer

    def step(self, name: str) -> Any:
        """Take an action by its name; return what the environment answers, or None for an illegal action.

        Raises:
            CertifyError: an action that raised also changed the state.
        """
        if self.level.illegal == "refuse":
            with self._staying():
                answer = self.env.step(self.action(name))
        else:
            if self.allowed is not None and not self.allowed[list(self.level.actions).index(name)]:
                return None
            before = level_state(self.level, self.env)
            try:
                with self._staying():
                    answer = self.env.step(self.action(name))
            except Exception as error:  # foreign code
                if isinstance(error.__cause__, SystemExit) or level_state(self.level, self.env) != before:
                    raise
                return None
        self.allowed = self.mask(answer[4])
        return answer

    def render(self) -> Any:
        """Return the environment's picture.

        Raises:
            CertifyError: it cannot draw.
        """
        try:
            return self.env.render()
        except (Exception, SystemExit) as error:  # foreign code
            raise CertifyError(
                f"gym.id={self.level.id!r}: render of {type(self.env.unwrapped).__name__} {raised(error)}; expected an "
                "RGB picture of every state; repair the environment, or wrap it in one that draws"
            ) from error

    @contextmanager
    def _staying(self) -> Iterator[None]:
        """Let an environment that ends the process raise an error instead."""
        try:
            yield
        except SystemExit as error:
            raise RuntimeError(f"{type(self.env.unwrapped).__name__} {raised(error)}") from error

    def own_mode(self, actions: Sequence[str]) -> str | None:
        """Return the failure mode of the level's predicates after actions from its start; None if none fits.

        Raises:
            CertifyError: a predicate is missing or raised.
        """
        functions = self.level.predicates()
        if not functions or not actions or actions[-1] == IDLE:
            return None
        replay = Game(self.env, self.level.start)
        replay.reset()
        answers = [replay.step(name) if name != IDLE else None for name in actions]
        if answers[-1] is None:
            return None
        _, reward, _, _, info = answers[-1]
        for mode, fits in functions.items():
            try:
                if fits(self.env, float(reward), info):
                    return mode
            except Exception as error:  # foreign code
                raise CertifyError(f"gym.failure_modes: the predicate of {mode!r} raised {error!r}") from error
        return None

    def key(self, observation: Any) -> Hashable:
        """Return the key of the current state, of which ``observation`` was the last answer."""
        with naming_settings(f"gym.id={self.level.id!r}: "):
            return hashable(observation) if self.level.key == "observation" else level_key(self.level, self.env)


def level_key(level: Level, env: Any) -> Hashable:
    """Return the state key of a level's environment."""
    package = package_of(env)
    return package.key(env) if level.key == "package" and package.key is not None else level_state(level, env)


def level_state(level: Level, env: Any) -> Hashable:
    """Return all attributes of a level's environment, without the clock and what decides nothing but pictures."""
    return state_of(env, frozenset((*level.clock, *package_of(env).constant)))


def level_env(level: Level) -> Any:
    """Make the environment of a level that this process may use, in any process, for a search of its states."""
    level.admit()
    env = level.make()
    if level.key != "observation":
        blind(env)
    return env


__all__ = ["IDLE", "Game", "GameSettings", "Level", "close", "first_level"]
