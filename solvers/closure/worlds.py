"""Ways to come back to a state of an environment: its own snapshots, deep copies, or a replay from ``reset``."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
from gymnasium.utils import EzPickle

from ...errors import CertifyError

if TYPE_CHECKING:
    from .success import Rule

Env = Any
"""A ``gymnasium.Env``, wrapped or not."""
How = Literal["snapshot", "deepcopy", "replay"]
Illegal = Literal["refuse", "invalid"]
"""Meaning of actions that a mask or an error of the environment forbids."""
Path = Callable[[], Sequence[Any]]
"""Return the actions that led to a state; they are put together for replays and messages alone."""
Success = Callable[[Env, float, bool, Mapping[str, Any]], bool]


class AdvisedError(CertifyError):
    """An error whose remedy has one name in Python and a different one in the settings of ``gym``."""

    is_kept: ClassVar[bool] = False
    """Whether the error keeps its type where it names settings."""

    def __init__(self, message: str, in_settings: str = "") -> None:
        """Keep the message with names of Python arguments, and the one with names of settings."""
        super().__init__(message)
        self.in_settings = in_settings or message


def advised(finding: str, python: str, settings: str) -> AdvisedError:
    """Return an error with a remedy for each kind of user."""
    return AdvisedError(f"{finding}; {python}", f"{finding}; {settings}")


@contextmanager
def naming_settings(where: str = "") -> Iterator[None]:
    """Let errors name settings in place of Python arguments, after the words ``where``."""
    try:
        yield
    except AdvisedError as error:
        kind = type(error) if error.is_kept else CertifyError
        raise kind(where + error.in_settings) from error


def raised(error: BaseException) -> str:
    """Return an error of the environment for a message, on one line."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({'' if error.code is None else repr(error.code)})"
    return " ".join(f"raised {type(error).__name__}: {error}".split())[:300]


@dataclass(frozen=True, slots=True)
class Reading:
    """Meaning of an environment's answers."""

    success: "Rule"
    """Judge of whether a step reached the goal."""
    key: Callable[[Env], Hashable] | None = None
    """Return the state key: equal keys mean states with equal futures. None: the observation is the key."""
    clock: tuple[str, ...] = ()
    """Attributes of ``env.unwrapped`` that count turns; they are held at their values after ``reset``, because the
    turn budget takes their place."""
    snapshot: Callable[[Env], Any] | None = None
    """Return what ``restore`` needs to come back; None: the environment's own ``snapshot()``."""
    restore: Callable[[Env, Any], None] | None = None
    mask: Callable[[Any], tuple[bool, ...] | None] = lambda _info: None
    """Return from ``info`` whether each action is allowed next; None if all are."""
    full: Callable[[Env], Hashable] | None = None
    """Return all attributes, where an action that raises counts as illegal if it changes none of them; None: such an
    action is refused."""


class IllegalActionError(AdvisedError):
    """A step raised: the environment does not allow the action."""

    def __init__(self, finding: str) -> None:
        """Add to the finding what to do."""
        self.finding = finding
        remedy = (
            f"{finding}; expected an answer to every action in every state; if it is illegal there, exclude it in "
            "info['action_mask'], or let it count as a turn without an action with "
        )
        super().__init__(
            f"{remedy}illegal='invalid'; else leave it out of actions, or repair the environment",
            f"{remedy}gym.illegal=invalid; else leave it out of gym.actions, or repair the environment",
        )


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
        self._still: dict[str, Any] = {}
        self.allowed: tuple[bool, ...] | None = None
        """Whether each action is allowed after the last reset or step; None if all are."""
        self.truncated = False
        """Whether the environment cut the episode off at the last step; the search goes on."""

    def reset(self) -> tuple[Hashable, bool]:
        """Reset the environment to the level; return the key of the first state and whether it is already won.

        Raises:
            CertifyError: the reset raised.
        """
        try:
            observation, info = self.env.reset(seed=self.seed, options=self.options)
        except (Exception, SystemExit) as error:  # foreign code
            raise CertifyError(
                f"reset with seed {self.seed} of {type(self.env.unwrapped).__name__} {raised(error)}; expected a level "
                "for every seed"
            ) from error
        try:
            self._still = {name: deepcopy(getattr(self.env.unwrapped, name)) for name in self.reading.clock}
        except AttributeError as error:
            raise CertifyError(
                f"clock: found {', '.join(self.reading.clock)}, expected attributes of "
                f"{type(self.env.unwrapped).__name__} after reset; {error}"
            ) from error
        self.allowed = self.reading.mask(info)
        return self._key(self.env, observation), self.reading.success.won_at_start(info)

    def act(self, env: Env, action: Any, path: Path = tuple, *, running: bool = False) -> Outcome:
        """Step an environment with its clock held still, or running; ``path`` led there, for the message of an error.

        Raises:
            CertifyError: the step raised.
        """
        if self._still and not running:
            for name, value in self._still.items():
                setattr(env.unwrapped, name, value)
        try:
            observation, reward, terminated, truncated, info = env.step(own(action))
        except (Exception, SystemExit) as error:  # foreign code; there, the action has no defined successor
            raise IllegalActionError(
                f"step({plain(action)!r}) of {type(env.unwrapped).__name__} {raised(error)}, after the actions "
                f"{plain(path())}"
            ) from error
        self.truncated, self.allowed = bool(truncated), self.reading.mask(info)
        try:
            reward = float(reward)
        except (TypeError, ValueError) as error:
            raise CertifyError(
                f"reward: found {short(reward)} after {action!r}, expected a number; wrap the environment in one that "
                "makes a single number of its rewards"
            ) from error
        if math.isnan(reward):
            raise CertifyError(
                f"reward: found nan, which is not a number, for {action!r} after the actions {list(path())}, "
                "expected a number; repair the reward of the environment"
            )
        won = self.reading.success.won(env, reward, bool(terminated), info)
        return Outcome(self._key(env, observation), reward, bool(terminated), won)

    def _key(self, env: Env, observation: Any) -> Hashable:
        return self.reading.key(env) if self.reading.key else hashable(observation)

    def step(self, handle: Any, path: Path, action: Any) -> Outcome | None:
        """Take an action in the state of a handle, which ``path`` led to; return None if it is illegal there.

        Raises:
            CertifyError: the step raised, and illegal actions are refused, or it changed the state.
        """
        env = self._at(handle, path)
        try:
            return self.act(env, action, path)
        except IllegalActionError as error:
            if self.reading.full is None or isinstance(error.__cause__, SystemExit):
                raise
            from .state import difference  # noqa: PLC0415 - state imports this module

            after, before = self.reading.full(env), self.reading.full(self._at(handle, path))
            if after == before:
                return None
            raise CertifyError(
                f"{error.finding}, and changed the state in {difference(before, after)}; expected an illegal action "
                "that changes nothing; repair the environment"
            ) from error

    @abstractmethod
    def _at(self, handle: Any, path: Path) -> Env:
        """Return an environment in the state of a handle, which ``path`` led to; stepping it changes no handle."""

    @abstractmethod
    def here(self) -> Any:
        """Return a handle of the state after the last ``reset`` or ``step``."""


class Snapshots(World):
    """Come back by the environment's own ``snapshot()`` and ``restore(snapshot)``."""

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
    """Come back by stepping a deep copy of the environment."""

    how: ClassVar[How] = "deepcopy"
    _last: Env = None

    def _at(self, handle: Any, path: Path) -> Env:
        """Copy; see the base class."""
        self._last = deepcopy(handle)
        return self._last

    def here(self) -> Any:
        """Return the copy that was stepped last, at first one of the environment; see the base class."""
        return deepcopy(self.env) if self._last is None else self._last


class Replays(World):
    """Come back by ``reset(seed=...)`` and all actions again."""

    how: ClassVar[How] = "replay"

    def _at(self, handle: Any, path: Path) -> Env:
        """Replay; see the base class."""
        self.reset()
        played: list[Any] = []
        for each in path():
            self.act(self.env, each, lambda: played)
            played.append(each)
        return self.env

    def here(self) -> Any:
        """Return nothing: the path is enough; see the base class."""


WORLDS: tuple[type[World], ...] = (Snapshots, Copies, Replays)


def world_of(env: Env, seed: int | None, options: dict[str, Any] | None, reading: Reading, how: How | None) -> World:
    """Return the first way back that an environment offers, or the named one.

    Raises:
        CertifyError: the named way is not offered.
    """
    offered = {"replay"}
    if reading.snapshot or all(callable(getattr(env.unwrapped, name, None)) for name in ("snapshot", "restore")):
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
    kind = next(kind for kind in WORLDS if kind.how == how or (how is None and kind.how in offered))
    return kind(env, seed, options, reading)


def _restarts(env: Env) -> str:
    """Return the class of an environment or wrapper whose copies lose their state; empty if there is none."""
    while True:
        if getattr(type(env), "__getstate__", None) is EzPickle.__getstate__:
            return type(env).__name__
        if not hasattr(env, "env"):
            return ""
        env = env.env


def hashable(value: Any) -> Hashable:
    """Return an observation as a key.

    Raises:
        CertifyError: it is none of number, text, bytes, array, tuple, list and mapping.
    """
    if isinstance(value, str | bytes | bool | int | float | type(None)):
        return value
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype == object:  # its bytes are addresses
            return array.shape, hashable(array.tolist())
        return (array.shape, array.dtype.str, array.tobytes())
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return tuple(sorted((str(name), hashable(each)) for name, each in items))
    if isinstance(value, list | tuple):
        return tuple(hashable(each) for each in cast(Sequence[Any], value))
    raise advised(
        f"observation: found {type(value).__name__}, expected numbers, texts, arrays, or tuples and mappings of them",
        "pass key=, a function from the environment to a hashable state",
        "use gym.key=state, or wrap the environment in one with such observations",
    )


def own(action: Any) -> Any:
    """Return an action that its environment may change."""
    return action.copy() if isinstance(action, np.ndarray) else action


def plain(value: Any) -> Any:
    """Return actions as numbers, lists and tuples, to compare and to show."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [plain(each) for each in cast(list[Any], value)]
    return tuple(plain(each) for each in cast(tuple[Any, ...], value)) if isinstance(value, tuple) else value


def short(value: object) -> str:
    """Return a value for a message, at most 80 characters."""
    text = " ".join(repr(value).split())
    return f"{text[:80]}…" if len(text) > 80 else text
