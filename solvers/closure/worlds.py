"""Ways to restore a state of an environment: its own snapshots, deep copies, or a replay from ``reset``."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

import numpy as np
from gymnasium.utils import EzPickle

from ...core.errors import CertifyError
from .actions import own
from .advice import IF_RANDOM, AdvisedError, ContradictionError, IllegalActionError, difference, plain, raised, short
from .outside import touches
from .parts import is_value
from .state import Keys
from .values import Reader

Env = Any
"""A ``gymnasium.Env``, wrapped or not."""
How = Literal["snapshot", "deepcopy", "replay"]
Illegal = Literal["refuse", "invalid"]
"""Meaning of actions that a mask or an error of the environment forbids."""
Path = Callable[[], Sequence[Any]]
"""Function that returns the actions that led to a state; called only for replays and messages."""
Success = Callable[[Env, float, bool, Mapping[str, Any]], bool]


def made_by(make: Callable[..., Env], *level: Any) -> Env:
    """Return the environment that a user's function makes.

    Raises:
        CertifyError: it returns something else.
    """
    if not callable(make):
        raise CertifyError(f"env: found {short(make)}, expected a function that makes an environment")
    try:
        env = make(*level)
    except TypeError as error:
        argument = f"the level {short(level[0])}" if level else "no level"
        raise CertifyError(f"env: the function raised {error} with {argument}") from error
    if not hasattr(env, "unwrapped"):
        raise CertifyError(f"env: the function returned {short(env)}, expected a gymnasium environment")
    return env


class Judge(Protocol):
    """Rule of success; see :class:`.success.Rule`."""

    closed: Success | str
    """The rule that decides every step by itself, once the level is searched."""

    def won(self, env: Env, reward: float, terminated: bool, info: Any, observation: Any = None) -> bool:
        """Return whether a step succeeded."""
        ...

    def won_at_start(self, info: Any) -> bool:
        """Return whether ``info`` of ``reset`` reports success already."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """Meaning of an environment's answers."""

    success: Judge
    """Judge of whether a step reached the goal."""
    key: Callable[[Env], Hashable] | None = None
    """Return the state key: equal keys mean states with equal futures. None: the observation is the key."""
    clock: tuple[str, ...] = ()
    """Attributes of ``env.unwrapped`` that count turns; they are held at their values after ``reset``, because the
    turn budget takes their place."""
    snapshot: Callable[[Env], Any] | None = None
    """Return what ``restore`` needs to come back; None: the environment's own ``snapshot()``."""
    restore: Callable[[Env, Any], None] | None = None
    drawing: tuple[str, ...] = ()
    """Attributes of ``env.unwrapped`` that decide nothing but pictures."""
    is_declared: bool = False
    """Whether the user named the clock, so that observations may show it."""
    mask: Callable[[Any], tuple[bool, ...] | None] = lambda _info: None
    """Return from ``info`` whether each action is allowed next; None if all are."""
    full: Callable[[Env], Hashable] | None = None
    """Return all attributes, where an action that raises counts as illegal if it changes none of them; None: such an
    action is refused."""


class Outcome(NamedTuple):
    """Result of one step."""

    key: Hashable
    reward: float
    ended: bool
    won: bool

    @property
    def shown(self) -> str:
        """The outcome in words, for messages."""
        end = "success" if self.won else "an end without success" if self.ended else "a state"
        return f"{end} with reward {self.reward:g}"


class World(ABC):
    """One level of an environment; a handle stands for a state, and stepping it leaves the handle usable."""

    how: ClassVar[How]

    def __init__(self, env: Env, seed: int | None, options: dict[str, Any] | None, reading: Reading) -> None:
        """Wrap an environment; nothing is reset yet."""
        self.env, self.seed, self.options, self.reading = env, seed, options, reading
        self.still: dict[str, Any] = {}
        """Values of the clock after ``reset``."""
        self._watch = reading.key if isinstance(reading.key, Keys) else None
        self.seen: int | None = None
        """Hash of the last observation, where the environment is not of a known package."""
        self.allowed: tuple[bool, ...] | None = None
        """Whether each action is allowed after the last reset or step; None if all are."""
        self.truncated = False
        """Whether the environment cut the episode off at the last step; the search goes on."""

    def reset(self) -> tuple[Hashable, bool]:
        """Reset the environment to the level; return the key of the first state and whether it is already won.

        Raises:
            CertifyError: the reset raised.
        """
        self.finish()
        try:
            observation, info = self.env.reset(seed=self.seed, options=self.options)
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            raise CertifyError(
                f"reset with seed {self.seed} of {type(self.env.unwrapped).__name__} {raised(error)}; expected a level "
                "for every seed"
            ) from error
        try:
            self.still = {name: deepcopy(getattr(self.env.unwrapped, name)) for name in self.reading.clock}
        except AttributeError as error:
            raise CertifyError(
                f"clock: found {', '.join(self.reading.clock)}, expected attributes of "
                f"{type(self.env.unwrapped).__name__} after reset; {error}"
            ) from error
        if self._watch:
            self._watch.begin()
        self.allowed = self.reading.mask(info)
        return self._key(self.env, observation), self.reading.success.won_at_start(info)

    def finish(self) -> None:
        """Refuse the steps since the last reset if they drew from a global random generator."""
        if self._watch:
            self._watch.finish()

    def go(self, action: Any, path: Path, *, env: Env = None, running: bool = False) -> Any:
        """Step an environment, by default that of ``reset``, and return its answer; see :meth:`act`."""
        env = self.env if env is None else env
        if self.still and not running:
            for name, value in self.still.items():
                setattr(env.unwrapped, name, value)
        try:
            if self._watch:
                return self._watched(env, own(action))
            return env.step(own(action))
        except AdvisedError:
            raise
        except (Exception, SystemExit) as error:  # foreign code; there, the action has no defined successor
            raise IllegalActionError(
                f"step({plain(action)!r}) of {type(env.unwrapped).__name__} {raised(error)}, after the actions "
                f"{plain(list(path()))}"
            ) from error

    def act(self, env: Env, action: Any, path: Path = tuple, *, running: bool = False) -> Outcome:
        """Step an environment with its clock held still, or running; ``path`` led there, for the message of an error.

        Raises:
            CertifyError: the step raised.
        """
        observation, reward, terminated, truncated, info = self.go(action, path, env=env, running=running)
        self.truncated, self.allowed = bool(truncated), self.reading.mask(info)
        try:
            reward = float(reward)
        except (TypeError, ValueError) as error:
            raise CertifyError(
                f"reward: found {short(reward)} after {plain(action)!r}, expected a number; wrap the environment in "
                "one that makes a single number of its rewards"
            ) from error
        if math.isnan(reward):
            raise CertifyError(
                f"reward: found nan, which is not a number, for {plain(action)!r} after the actions "
                f"{plain(list(path()))}, expected a number; repair the reward of the environment"
            )
        won = self.reading.success.won(env, reward, bool(terminated), info, observation)
        return Outcome(self._key(env, observation), reward, bool(terminated), won)

    def _watched(self, env: Env, action: Any) -> Any:
        """Step, and refuse what the step does outside of the environment."""
        assert self._watch is not None
        with touches() as touched:
            answer = env.step(action)
        if touched:
            raise AdvisedError(
                f"step({plain(action)!r}) of {type(env.unwrapped).__name__} touches what is outside: {touched[0]}; "
                "no search brings that back; keep the state in attributes, or set gym.key=observation if the "
                "observation shows the full state"
            )
        return answer

    def _key(self, env: Env, observation: Any) -> Hashable:
        if self.reading.key is None:
            return hashable(observation)
        key = self.reading.key(env)
        if self._watch:
            if not (self.reading.clock and self.reading.is_declared):
                self.seen = _glance(observation)
            if self._watch.changed and self.how != "replay":
                raise ContradictionError(
                    f"a step changes {self._watch.changed}, which {self.how} does not bring back; keep it in an "
                    "attribute of the environment, or set gym.how=replay and set it in reset"
                )
        return key

    def step(self, handle: Any, path: Path, action: Any) -> Outcome | None:
        """Take an action in the state of a handle, reached by ``path``; return None if it is illegal there.

        Raises:
            CertifyError: the step raised, and illegal actions are refused, or it changed the state.
        """
        env = self._at(handle, path)
        try:
            return self.act(env, action, path)
        except IllegalActionError as error:
            full = self.reading.full
            if full is None or isinstance(error.__cause__, SystemExit):
                raise
            if begin := getattr(full, "begin", None):
                begin()
            after, before = full(env), full(self._at(handle, path))
            if after == before:
                return None
            raise CertifyError(
                f"{error.finding}, and changed the state in {difference(before, after)}; expected an illegal action "
                "that changes nothing; repair the environment"
            ) from error

    @abstractmethod
    def _at(self, handle: Any, path: Path) -> Env:
        """Return an environment in the state of a handle, reached by ``path``; stepping it changes no handle."""

    @abstractmethod
    def here(self) -> Any:
        """Return a handle of the state after the last ``reset`` or ``step``."""


def _glance(observation: Any) -> int | None:
    """Return the hash of an observation, or None if it cannot be compared."""
    try:
        return hash(hashable(observation))
    except AdvisedError:
        return None


class Snapshots(World):
    """Restores states by the environment's own ``snapshot()`` and ``restore(snapshot)``."""

    how: ClassVar[How] = "snapshot"

    def __init__(self, env: Env, seed: int | None, options: dict[str, Any] | None, reading: Reading) -> None:
        """Find the two methods; see the base class."""
        super().__init__(env, seed, options, reading)
        take, come_back = reading.snapshot, reading.restore
        self._take = partial(take, env) if take else env.unwrapped.snapshot
        self._come_back = partial(come_back, env) if come_back else env.unwrapped.restore

    def _at(self, handle: Any, path: Path) -> Env:
        """Restore; see the base class."""
        self._come_back(handle)
        return self.env

    def here(self) -> Any:
        """Return a snapshot; see the base class."""
        return self._take()


class Copies(World):
    """Restores states by keeping deep copies of the environment."""

    how: ClassVar[How] = "deepcopy"
    _last: Env = None

    def _at(self, handle: Any, path: Path) -> Env:
        """Restore a copy; see the base class."""
        self._last = deepcopy(handle)
        return self._last

    def here(self) -> Any:
        """Return the last stepped copy, at first a copy of the environment; see the base class."""
        return deepcopy(self.env) if self._last is None else self._last


class Replays(World):
    """Restores states by ``reset(seed=...)`` and all actions."""

    how: ClassVar[How] = "replay"

    _first: Hashable = None

    def _at(self, handle: Any, path: Path) -> Env:
        """Replay; see the base class."""
        first, _ = self.reset()
        if self._first is None:
            self._first = first
        elif first != self._first:
            raise two_resets(self.seed, difference(self._first, first))
        played: list[Any] = []
        for each in path():
            self.act(self.env, each, lambda: played)
            played.append(each)
        return self.env

    def here(self) -> Any:
        """Return nothing: the path is enough; see the base class."""


def two_resets(seed: int | None, where: str) -> AdvisedError:
    """Return the error for a reset that does not restore the first state."""
    return AdvisedError(
        f"two calls of reset with seed {seed} differ in {where}, expected equal states; let reset set all attributes, "
        f"by the seed alone, or use gym.key=observation if the observation shows the full state; {IF_RANDOM}"
    )


WORLDS: tuple[type[World], ...] = (Snapshots, Copies, Replays)


def worlds_of(env: Env, how: How | None, *, snapshots: bool) -> list[type[World]]:
    """Return the available ways to restore states, or the named one.

    Args:
        env: the environment.
        how: the way to take; None for all, the quickest first.
        snapshots: whether its package is known to have snapshots.

    Raises:
        CertifyError: the named way is not offered.
    """
    offered = {"replay"}
    if snapshots or all(callable(getattr(env.unwrapped, name, None)) for name in ("snapshot", "restore")):
        offered.add("snapshot")
    try:
        if restarted := _restarts(env):
            raise TypeError(f"{restarted} is an EzPickle, whose copies start over")
        deepcopy(env)
        offered.add("deepcopy")
    except Exception as error:  # windows, sockets and generators cannot be copied
        if how == "deepcopy":
            raise CertifyError(f"how: found 'deepcopy', but the environment cannot be copied: {error}") from error
    if how is not None and how not in offered:
        raise CertifyError(f"how: found {how!r}, expected one of {', '.join(sorted(offered))} for this environment")
    return [kind for kind in WORLDS if kind.how == how or (how is None and kind.how in offered)]


def hashable(value: Any) -> Hashable:  # noqa: PLR0911 - one for each kind of value
    """Return an observation as a key: equal numbers are equal whatever their type.

    Raises:
        CertifyError: it is none of number, text, bytes, array, tuple, list, set and mapping.
    """
    if isinstance(value, bool | int | np.bool_ | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return "nan" if math.isnan(number) else number
    if isinstance(value, str | bytes | type(None)):
        return value
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype == object:  # bytes of objects are addresses
            return array.shape, hashable(array.tolist())
        if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
            wide = array.astype(np.float64)
            if (
                array.dtype.kind != "f"
                and array.dtype.itemsize == 8
                and not np.array_equal(wide.astype(array.dtype), array)
            ):
                return array.shape, array.dtype.str, array.tobytes()
            return array.shape, (wide + 0.0).tobytes()
        return array.shape, array.dtype.str, array.tobytes()
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return tuple(sorted(((str(name), hashable(each)) for name, each in items), key=lambda pair: pair[0]))
    if isinstance(value, list | tuple):
        return tuple(hashable(each) for each in cast(Sequence[Any], value))
    if isinstance(value, set | frozenset):
        return frozenset(hashable(each) for each in cast(Iterable[Any], value))
    if is_value(type(value)) or isinstance(value, Enum | complex | deque):
        return Reader().read(value)
    raise AdvisedError(
        f"observation: found {type(value).__name__}, expected numbers, texts, arrays, or tuples and mappings of them; "
        "use gym.key=state, or wrap the environment in one with such observations"
    )


def _restarts(env: Env) -> str:
    """Return the class of an environment or wrapper whose copies lose their state; empty if there is none."""
    while True:
        if getattr(type(env), "__getstate__", None) is EzPickle.__getstate__:
            return type(env).__name__
        if not hasattr(env, "env"):
            return ""
        env = env.env
