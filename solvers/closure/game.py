"""One level of a gymnasium environment as text, and what its steps mean: actions, state key, success, clock.

The text is JSON and complete: with the package of the environment, it is enough to play the level again.
"""

import os
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, Self

import gymnasium
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from pydantic import ConfigDict, Field, ValidationError, field_validator

from ...core import admission
from ...core.errors import CertifyError, LevelError, NotAllowedError
from ...core.identity import canonical_json
from ...core.plugins import WORD, Settings
from ..base import FAILURE_MODES
from .actions import allowed, member, named_actions
from .advice import ClockError, naming_settings, raised
from .graph import IDLE
from .packages import PACKAGES, blind, package_of
from .state import Keys, bare, counters, keys_of
from .success import PREDICATE, check_rule, is_predicate
from .worlds import How, Illegal, hashable

_KNOWN = frozenset({"", *(each.module for each in PACKAGES)})
"""Modules that are imported without ``--allow``; the empty name stands for no module."""


class GameSettings(Settings):
    """Id of an environment, and the interpretation of its steps."""

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
    bool), ``info.KEY==VALUE``, ``goal-reward``, or a predicate, ``module:function``, of environment, reward,
    ``terminated`` and ``info``. Empty for ``info.success`` or ``info.is_success`` where the environment sets one, else
    ``goal-reward``: a positive reward that nothing but ends of the episode pays."""
    clock: tuple[str, ...] | None = Field(default=None, strict=False)
    """Attributes that count turns and decide nothing but rewards; they are no part of a state. By default found by
    play; empty for none, so that all attributes are part of the state."""
    drawing: tuple[str, ...] = Field(default=(), strict=False)
    """Attributes that decide nothing but pictures, such as fonts and windows; they are no part of a state."""
    how: How | None = None
    """Way to come back to a state: ``snapshot`` (the environment's own), ``deepcopy`` or ``replay``; by default the
    first that leads where a replay leads."""
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
        """Whether the environment is one of :data:`PACKAGES`, whose code is known to be harmless."""
        is_listed = any(self.id.startswith(each.prefixes) and each.module == self.module for each in PACKAGES)
        return is_listed and not self.failure_modes and not is_predicate(self.success)

    @property
    def code(self) -> dict[str, str]:
        """Modules outside of gymnasium and :data:`PACKAGES` whose code the level runs, each with its setting."""
        named: dict[str, str] = {}
        if self.module not in _KNOWN:
            named[self.module] = "gym.package"
        elif registered := _registered_by(self.id):
            named[registered] = "gym.id"
        functions = {text.partition(":")[0]: "gym.failure_modes" for text in self.failure_modes.values()}
        if is_predicate(self.success):
            functions[self.success.partition(":")[0]] = "gym.success"
        return functions | named

    def predicates(self) -> dict[str, Callable[[Any, float, Mapping[str, Any]], bool]]:
        """Return the functions that decide the failure modes of the settings, in their order.

        Raises:
            CertifyError: a module or a function is missing. NotAllowedError: this call does not allow it.
        """
        admission.require(self.code)
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
            CertifyError: it cannot be made; the message says what to install. NotAllowedError: this call does not
                allow its code.
        """
        admission.require(self.code)
        if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else each process of pygame prints an error
        try:
            if self.module:
                import_module(self.module)
            admission.require(self.code)  # the id may be registered only now
            env = gymnasium.make(
                self.id, max_episode_steps=-1, disable_env_checker=True, render_mode=render_mode, **self.kwargs
            )
            return bare(env, observed=self.key == "observation")
        except NotAllowedError:
            raise
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            raise CertifyError(
                f"gym.id={self.id!r} cannot be made: {raised(error)}; install its package (for "
                "MiniGrid and gymnasium's toy text: pip install 'pivot-vlm[gym]'), and set gym.package to the module "
                "that registers it"
            ) from error


def _registered_by(name: str) -> str:
    """Return the module that an id of the registry runs; empty for gymnasium, minigrid and ids that nobody registered.

    Nothing is imported: an id that only a package registers is known after its import.
    """
    with suppress(gymnasium.error.Error):
        namespace, kind, version = parse_env_id(name)
        version = find_highest_version(namespace, kind) if version is None else version
        spec = gymnasium.registry.get(get_env_id(namespace, kind, version))
        entry: Any = None if spec is None else spec.entry_point
        module = "" if entry is None else entry.partition(":")[0] if isinstance(entry, str) else entry.__module__
        return "" if module.partition(".")[0] in {"gymnasium", *_KNOWN} else module
    return ""


class Level(GameSettings):
    """One level: the game, its seed, and the actions taken since its start."""

    model_config = ConfigDict(strict=True)

    seed: int = Field(ge=0)
    clock: tuple[str, ...] = Field(default=(), strict=False)  # pyright: ignore[reportIncompatibleVariableOverride]
    """Attributes of the environment that count turns."""
    turns: int | None = Field(default=None, ge=1)
    """Turns from the start after which a search ends, where counters of turns are part of the state."""
    success_steps: tuple[int, int] = Field(default=(0, 0), strict=False)
    """Number of steps that succeed in the first levels of these settings, and of steps that also end the episode."""
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
    """Close an environment, and ignore errors (some cannot be closed without pictures)."""
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
        game = Game(env, level)
        members = [game.action(name) for name in actions]
        counted = counters(env, members, seed, game.options, game.mask, illegal=level.illegal == "invalid")
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise CertifyError(
            f"gym.id={settings.id!r}: {played} of {type(env.unwrapped).__name__} {raised(error)}; expected a level "
            "for every seed, and an answer to every action; if an action is illegal in a state, exclude it in "
            "info['action_mask'], or set gym.illegal=invalid; else repair the environment"
        ) from error
    if declared is None:
        level = level.model_copy(update={"clock": counted})
        timed = level.model_copy(update={"turns": horizon})
        if horizon and counted and package_of(env).key is None and _decides(timed, env):
            level = level.model_copy(update={"clock": ()})
    if set(counted) - set(level.clock):
        level = level.model_copy(update={"turns": horizon})
    return level, env


def _decides(level: Level, env: Any) -> bool:
    """Return whether the clock of a level affects more than rewards, as far as a short search shows."""
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
    return {
        "actions": level.actions,
        "seed": level.seed,
        "options": level.options or None,
        "key": {"observation": "observation", "package": "state", "state": "attributes"}[level.key],
        "success": level.success,
        "illegal": level.illegal,
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
    allowed: tuple[bool, ...] | None = None
    """Whether each action is allowed next; None if all are."""
    _keys: Callable[[Any], Hashable] | None = None
    _full: Callable[[Any], Hashable] | None = None

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
        if isinstance(self._keys, Keys):
            self._keys.begin()
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
        """Take an action by its name; return what the environment answers, or None for an illegal action."""
        if self.level.illegal == "refuse":
            with self._staying():
                answer = self.env.step(self.action(name))
        else:
            if self.allowed is not None and not self.allowed[list(self.level.actions).index(name)]:
                return None
            before = self._whole()
            try:
                with self._staying():
                    answer = self.env.step(self.action(name))
            except Exception as error:  # foreign code may raise anything
                if isinstance(error.__cause__, SystemExit) or self._whole(again=True) != before:
                    raise
                return None
        self.allowed = self.mask(answer[4])
        return answer

    def _whole(self, *, again: bool = False) -> Hashable:
        """Return all attributes; ``again`` if no step was taken since, except one that raised."""
        if self._full is None:
            self._full = level_keys(self.level, self.env, whole=True)
        if isinstance(self._full, Keys) and not again:
            self._full.begin()
        return self._full(self.env)

    def render(self) -> Any:
        """Return the environment's picture.

        Raises:
            CertifyError: it cannot draw.
        """
        try:
            return self.env.render()
        except (Exception, SystemExit) as error:  # foreign code may raise anything
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
            except Exception as error:  # foreign code may raise anything
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


def level_env(level: Level) -> Any:
    """Make the environment of a level, in any process, for a search of its states."""
    env = level.make()
    if level.key != "observation":
        blind(env)
    return env


__all__ = ["Game", "GameSettings", "Level", "close", "first_level"]
