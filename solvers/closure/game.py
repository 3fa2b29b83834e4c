"""One level of a gymnasium environment as text, and what its steps mean: actions, state key, success, clock.

The text is JSON and complete: with the package of the environment, it is enough to play the level again.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import product
from typing import Any, ClassVar, Literal, Self, cast

import gymnasium
from pydantic import ConfigDict, Field, ValidationError, field_validator

from ...errors import CertifyError, LevelError
from ...identity import canonical_json
from ...plugins import WORD, Settings
from ..base import FAILURE_MODES
from .advice import AdvisedError, ClockError, advised, naming_settings, raised
from .packages import PACKAGES, blind, package_of
from .state import Keys, bare, counters, keys_of
from .worlds import How, hashable

MAX_ACTIONS = 64
_PREDICATE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
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
    success: Literal["reward", "terminated"] = "reward"
    """Meaning of success where ``info`` has no ``success``: a reward above ``success_above``, or the end of the
    episode with such a reward."""
    success_above: float = 0.0
    """Reward above which a step succeeds."""
    clock: tuple[str, ...] | None = Field(default=None, strict=False)
    """Attributes that count turns and decide nothing but rewards; they are no part of a state. By default found by
    play; empty for none, so that all attributes are part of the state."""
    drawing: tuple[str, ...] = Field(default=(), strict=False)
    """Attributes that decide nothing but pictures, such as fonts and windows; they are no part of a state."""
    how: How | None = None
    """Way to come back to a state: ``snapshot`` (the environment's own), ``deepcopy`` or ``replay``; by default the
    first that leads where a replay leads."""
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

    @field_validator("failure_modes")
    @classmethod
    def _modes(cls, value: dict[str, str]) -> dict[str, str]:
        for name, function in value.items():
            if not WORD.fullmatch(name) or name in FAILURE_MODES:
                raise ValueError(f"found the mode {name!r}, expected a new lower-case word")
            if not _PREDICATE.fullmatch(function):
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
        return is_listed and not self.failure_modes

    @property
    def _code(self) -> str:
        """Name of everything whose code the level runs."""
        return canonical_json([self.module, self.id, self.failure_modes])

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
        """Make the environment, without a limit on its time and without wrappers that only keep account.

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
            env = gymnasium.make(
                self.id, max_episode_steps=-1, disable_env_checker=True, render_mode=render_mode, **self.kwargs
            )
            return bare(env, observed=self.key == "observation")
        except (Exception, SystemExit) as error:  # foreign code
            raise CertifyError(
                f"gym.id={self.id!r} cannot be made: {raised(error)}; install its package (for "
                "MiniGrid and gymnasium's toy text: pip install 'pivot-vlm[gym]'), and set gym.package to the module "
                "that registers it"
            ) from error


@cache
def _names_of_toy_text(kind: str) -> tuple[str, ...]:
    return {
        "FrozenLakeEnv": ("left", "down", "right", "up"),
        "CliffWalkingEnv": ("up", "right", "down", "left"),
        "TaxiEnv": ("south", "north", "east", "west", "pickup", "dropoff"),
    }.get(kind, ())


def named_actions(env: Any, declared: Mapping[str, int | list[int]] | None = None) -> dict[str, int | list[int]]:
    """Return the actions of an environment by name, in the order of their numbers.

    Raises:
        CertifyError: the action space is neither discrete nor a small tuple of discrete ones, or the names do not fit.
    """
    space: Any = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        values: list[Any] = list(range(int(space.start), int(space.start + space.n)))
    elif isinstance(space, gymnasium.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        values = [list(each) for each in product(*(range(int(count)) for count in space.nvec))]
    elif isinstance(space, gymnasium.spaces.Tuple) and all(
        isinstance(each, gymnasium.spaces.Discrete) for each in space.spaces
    ):
        values = [list(each) for each in product(*(range(int(cast(Any, part).n)) for part in space.spaces))]
    else:
        raise AdvisedError(
            f"actions: found the action space {space}, expected a discrete one, or a tuple of discrete ones with at "
            f"most {MAX_ACTIONS} members; wrap the environment in one with a list of actions"
        )
    if declared:
        unknown = [name for name, value in declared.items() if value not in values]
        if unknown:
            raise AdvisedError(f"actions: found {declared[unknown[0]]!r} for {unknown[0]!r}, expected one of {space}")
        return dict(declared)
    if len(values) > MAX_ACTIONS:
        raise advised(
            f"actions: found {len(values)}, expected at most {MAX_ACTIONS}",
            "name those to use in actions=",
            "name those to use in gym.actions",
        )
    kinds: Any = getattr(env.unwrapped, "actions", None)
    names: Sequence[str] = _names_of_toy_text(type(env.unwrapped).__name__)
    if isinstance(kinds, type) and hasattr(kinds, "__members__"):
        names = list(cast(Any, kinds).__members__)
    if len(names) != len(values):
        names = [f"action_{'_'.join(map(str, each if isinstance(each, list) else [each]))}" for each in values]
    return dict(zip((name.lower() for name in names), values, strict=True))


class Level(GameSettings):
    """One level: the game, its seed, and the actions taken since its start."""

    model_config = ConfigDict(strict=True)

    seed: int = Field(ge=0)
    clock: tuple[str, ...] = Field(default=(), strict=False)  # pyright: ignore[reportIncompatibleVariableOverride]
    """Attributes of the environment that count turns."""
    turns: int | None = Field(default=None, ge=1)
    """Turns from the start after which a search ends, where counters of turns are part of the state."""
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


def first_level(settings: GameSettings, seed: int, horizon: int | None = None) -> tuple[Level, Any]:
    """Return the level of a seed, with the names of its actions and its clock, and the environment.

    Args:
        settings: settings of the game.
        seed: seed of the level.
        horizon: turn budget; with it, a part of the level is searched to see whether more than rewards depends on the
            clock, which is then part of the state. Known packages need no search.

    Raises:
        CertifyError: the environment cannot be made, or its actions cannot be listed.
    """
    env = settings.make()
    with naming_settings(f"gym.id={settings.id!r}: "):
        actions = named_actions(env, settings.actions)
    declared = settings.clock
    fields = settings.model_dump() | {"actions": actions, "seed": seed, "clock": declared or ()}
    level = Level.model_validate(fields)
    played = f"reset with seed {seed}"
    try:
        env.reset(seed=seed, options=level.options or None)
        played = f"a step in the level of seed {seed}"
        counted = counters(env, list(actions.values()), seed, level.options or None)
    except (Exception, SystemExit) as error:  # foreign code
        raise CertifyError(
            f"gym.id={settings.id!r}: {played} of {type(env.unwrapped).__name__} {raised(error)}; expected a level "
            "for every seed, and an answer to every action; repair the environment"
        ) from error
    if declared is None:
        level = level.model_copy(update={"clock": counted})
        if horizon and counted and package_of(env).key is None and _decides(level, env):
            level = level.model_copy(update={"clock": ()})
    if set(counted) - set(level.clock):
        level = level.model_copy(update={"turns": horizon})
    return level, env


def _decides(level: Level, env: Any) -> bool:
    """Return whether the clock of a level decides more than rewards, as far as a short search shows."""
    from .explore import explore  # noqa: PLC0415 - it imports this module

    try:
        explore(env, **search_of(level), max_states=500, max_seconds=5.0, checks=16, joins=False)
    except ClockError:
        return True
    except (Exception, SystemExit):  # noqa: BLE001 - foreign code; the search for labels says what is wrong
        return False
    return False


def search_of(level: Level) -> dict[str, Any]:
    """Return the arguments of :func:`.explore` for a level, without limits."""
    game = Game(None, level)
    return {
        "actions": {name: game.action(name) for name in level.actions},
        "seed": level.seed,
        "options": game.options,
        "key": {"observation": "observation", "package": "state", "state": "attributes"}[level.key],
        "success": partial(succeeds, level),
        "clock": level.clock,
        "drawing": level.drawing,
        "how": level.how,
        "horizon": level.turns,
    }


@dataclass
class Game:
    """A level that can be played."""

    env: Any
    level: Level
    _keys: Callable[[Any], Hashable] | None = None

    @property
    def options(self) -> dict[str, Any] | None:
        """Options of ``reset``."""
        return self.level.options or None

    def action(self, name: str) -> Any:
        """Return the member of the action space of a name."""
        value = self.level.actions[name]
        return tuple(value) if isinstance(value, list) else value

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Start the level and take the actions of its text; return observation and ``info``.

        Raises:
            LevelError: the episode ends before the last of them.
        """
        with self._staying():
            answer = self.env.reset(seed=self.level.seed, options=self.options)
        if isinstance(self._keys, Keys):
            self._keys.begin()
        for step, name in enumerate(self.level.taken):
            observation, _, terminated, _, info = self.step(name)
            if terminated and step < len(self.level.taken) - 1:
                raise LevelError(f"the gym level goes on after its end at action {step}")
            answer = observation, info
        return answer

    def step(self, name: str) -> Any:
        """Take an action by its name; return what the environment answers."""
        with self._staying():
            return self.env.step(self.action(name))

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

    def won(self, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        """Return whether a step succeeded."""
        return succeeds(self.level, self.env, reward, terminated, info)

    def own_mode(self, actions: Sequence[str]) -> str | None:
        """Return the failure mode of the level's predicates after actions from its start; None if none fits.

        Raises:
            CertifyError: a predicate is missing or raised.
        """
        functions = self.level.predicates()
        if not functions or not actions or actions[-1] == IDLE:
            return None
        self.env.reset(seed=self.level.seed, options=self.options)
        reward, info = 0.0, dict[str, Any]()
        for name in actions:
            if name != IDLE:
                _, reward, _, _, info = self.env.step(self.action(name))
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
            if self.level.key == "observation":
                return hashable(observation)
            if self._keys is None:
                self._keys = level_keys(self.level, self.env)
            return self._keys(self.env)


def level_keys(level: Level, env: Any, *, whole: bool = False) -> Callable[[Any], Hashable]:
    """Return the function of the state keys of a level's environment.

    Args:
        level: the level.
        env: its environment.
        whole: whether keys hold all attributes also where the package has a shorter key.
    """
    package = package_of(env)
    if level.key == "package" and package.key is not None and not whole:
        return package.key
    return keys_of(env, (*level.clock, *level.drawing))


def succeeds(level: Level, env: Any, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
    """Return whether a step reached the goal of a level."""
    del env
    if "success" in info:
        return bool(info["success"])
    return reward > level.success_above and (terminated or level.success == "reward")


def level_env(level: Level) -> Any:
    """Make the environment of a level that this process may use, in any process, for a search of its states."""
    level.admit()
    env = level.make()
    if level.key != "observation":
        blind(env)
    return env


__all__ = ["IDLE", "Game", "GameSettings", "Level", "close", "first_level", "named_actions"]
