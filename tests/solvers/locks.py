"""Locks that draw random numbers, count turns or have odd values, with their true labels.

All locks play the same game: six digits, three buttons, one trap. No observation shows the digit.
"""

import collections
import datetime
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

TABLE = ((1, 0, 0), (1, 2, 0), (0, 3, 2), (3, -1, 4), (5, 0, 4), (0, 6, 1))
"""Digit after each button; -1 ends the game, 6 is success."""
GOAL, TRAP = 6, -1
Answer = tuple[Any, float, bool, bool, dict[str, Any]]


class Lock(gymnasium.Env[Any, Any]):
    """Keeps its digit as an attribute; subclasses keep it elsewhere."""

    metadata = {"render_modes": []}  # noqa: RUF012 - of the base class

    def __init__(self) -> None:
        self.action_space, self.observation_space = spaces.Discrete(3), spaces.Discrete(2)
        self.make()

    def make(self) -> None:
        """Prepare the place of the digit."""

    def put(self, digit: int) -> None:
        """Keep the digit."""
        self.digit = digit

    def get(self) -> int:
        """Return the digit."""
        return self.digit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.put(0)
        return 0, {}

    def step(self, action: int) -> Answer:
        digit = TABLE[self.get()][int(action)]
        self.put(max(digit, 0) % GOAL)
        return 0, float(digit == GOAL), digit in (GOAL, TRAP), False, {}


class Windowed(Lock):
    """A lock that keeps the last picture that it drew."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - of the base class

    def make(self) -> None:
        self.render_mode, self.window = "rgb_array", np.zeros((4, 4, 3), np.uint8)

    def render(self) -> Any:
        self.window = np.full((4, 4, 3), 40 * self.digit, np.uint8)
        return self.window


class Slow(Lock):
    """A game whose goal closes after thirty counted steps."""

    def make(self) -> None:
        self.ticks = 0

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.ticks = 0
        return super().reset(**settings)

    def step(self, action: int) -> Answer:
        self.ticks += 1
        return super().step(action if self.ticks < 30 else 1)


class Even(Slow):
    """Success counts only in even turns, by a counter in steps of two."""

    def step(self, action: int) -> Answer:
        self.ticks += 2
        answer = Lock.step(self, action)
        return (answer[0], answer[1] * (self.ticks % 4 == 0), *answer[2:])


class FailsRarely(Lock):
    """A game in which one step in twenty fails, by the seeded generator."""

    def step(self, action: int) -> Answer:
        return super().step(int(action) if self.np_random.random() > 0.05 else 2)


class FailsByGlobal(Lock):
    """A game in which one step in twenty fails, by the module's generator, which reset seeds."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        random.seed(3)
        return super().reset(**settings)

    def step(self, action: int) -> Answer:
        return super().step(int(action) if random.random() > 0.05 else 2)


class FailsByNumpy(FailsByGlobal):
    """A game in which one step in twenty fails, by numpy's old generator."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        np.random.seed(3)
        return Lock.reset(self, **settings)

    def step(self, action: int) -> Answer:
        return Lock.step(self, int(action) if np.random.random() > 0.05 else 2)


class FailsByOwn(Lock):
    """A game in which one step in twenty fails, by its own generator."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.dice = random.Random(5)
        return super().reset(**settings)

    def step(self, action: int) -> Answer:
        return super().step(int(action) if self.dice.random() > 0.05 else 2)


class FailsBySystem(Lock):
    """A game in which one step in ten fails, by random numbers of the system."""

    def step(self, action: int) -> Answer:
        return super().step(int(action) if os.urandom(1)[0] > 25 else 2)


class Wrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that blocks the lake's goal until the start was left to the right, which a closure remembers."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        been = [False]
        self.seen = lambda: been
        return self.env.reset(**settings)

    def step(self, action: Any) -> Answer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.seen()[0] |= bool(observation == 1)
        return observation, float(reward) * self.seen()[0], terminated, truncated, info


RANDOM: tuple[type[Lock], ...] = (FailsRarely, FailsByGlobal, FailsByNumpy, FailsByOwn, FailsBySystem)


# ---- games without faults


class Ticking(Lock):
    """A game whose observation shows the turn, which has no other effect."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.turn = 0
        super().reset(**settings)
        return np.array([self.turn]), {}

    def step(self, action: int) -> Answer:
        self.turn += 1
        _, *rest = super().step(action)
        return (np.array([self.turn]), *rest)  # pyright: ignore[reportReturnType]


class Late(Lock):
    """A game that ends as a failure after nine counted turns."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.turn = 0
        return super().reset(**settings)

    def step(self, action: int) -> Answer:
        self.turn += 1
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or self.turn >= 9, truncated, info


class Seasons(Lock):
    """A game whose buttons do nothing every third turn, which the state shows."""

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.season = 0
        return super().reset(**settings)

    def step(self, action: int) -> Answer:
        self.season = (self.season + 1) % 3
        if self.season == 0:
            return 0, 0.0, False, False, {}
        return super().step(action)


@dataclass(frozen=True)
class _Place:
    digit: int


def _honest(name: str, put: Callable[[int], Any], get: Callable[[Any], int], *, shown: bool = False) -> type[Lock]:
    """Return a lock whose digit is a value of an odd type, which may also be its observation."""

    def step(self: Any, action: int) -> Answer:
        _, *rest = Lock.step(self, action)
        return (self.kept if shown else 0, *rest)  # pyright: ignore

    def reset(self: Any, **settings: Any) -> Any:
        Lock.reset(self, **settings)
        return self.kept if shown else 0, {}

    members = {
        "put": lambda self, digit: setattr(self, "kept", put(digit)),
        "get": lambda self: get(self.kept),
        "step": step,
        "reset": reset,
        "__module__": __name__,
    }
    return type(name, (Lock,), members)


_DAY = datetime.date(2024, 2, 28)
HONEST: dict[str, Callable[[], Any]] = {
    **{
        kind.__name__: kind
        for kind in (
            _honest("Decimals", lambda digit: Decimal(digit) / 10, lambda kept: int(kept * 10), shown=True),
            _honest(
                "Dates",
                lambda digit: _DAY + datetime.timedelta(days=digit),
                lambda kept: (kept - _DAY).days,
                shown=True,
            ),
            _honest("Fractions", lambda digit: Fraction(digit, 7), lambda kept: int(kept * 7), shown=True),
            _honest("Sets", lambda digit: set(range(digit)), len, shown=True),
            _honest("FrozenSets", lambda digit: frozenset((each, -each) for each in range(digit)), len, shown=True),
            _honest("Complex", lambda digit: complex(0, digit), lambda kept: int(kept.imag), shown=True),
            _honest("NotANumber", lambda digit: np.array([np.nan, digit]), lambda kept: int(kept[1]), shown=True),
            _honest("NanInside", lambda digit: (float("nan"), digit), lambda kept: kept[1]),
            _honest(
                "Bits",
                lambda digit: np.array([digit >> bit & 1 for bit in range(3)], np.int8),
                lambda kept: int(kept @ [1, 2, 4]),
                shown=True,
            ),
            _honest("Texts", lambda digit: "x" * digit, len, shown=True),
            _honest(
                "Dicts",
                lambda digit: {"digit": np.int64(digit), "rest": [None, 0.5]},
                lambda kept: int(kept["digit"]),
                shown=True,
            ),
            _honest("Frozen", _Place, lambda kept: kept.digit),
            _honest(
                "Moments",
                lambda digit: datetime.datetime(2024, 1, 1, digit, tzinfo=datetime.UTC),
                lambda kept: kept.hour,
            ),
            _honest("Deques", lambda digit: collections.deque(range(digit), maxlen=9), len),
        )
    },
    "Seasons": Seasons,
    "Late": Late,
}
"""Games that must be labelled without any setting."""


class Snapping(Lock):
    """A game whose ``snapshot`` makes a photo and whose ``restore`` restores no state."""

    def snapshot(self) -> str:
        return "a picture"

    def restore(self, snapshot: str) -> None:
        """Show the snapshot's picture again."""


class Saving(Lock):
    """A game whose ``snapshot`` saves to a file and needs its name."""

    def snapshot(self, name: str) -> None:
        raise NotImplementedError(name)

    def restore(self, name: str) -> None:
        raise NotImplementedError(name)


def wrapped(*layers: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return a function that makes a lock in wrappers."""

    def make() -> Any:
        env: Any = Lock()
        for layer in layers:
            env = layer(env)
        return env

    return make


_W = gymnasium.wrappers
HONEST |= {
    "snapshot": Snapping,
    "saving": Saving,
    "time limit": wrapped(lambda env: _W.TimeLimit(env, 20)),
    "statistics": wrapped(_W.RecordEpisodeStatistics, lambda env: _W.TimeLimit(env, 50)),
    "inside": wrapped(
        lambda env: _W.TimeLimit(env, 20), lambda env: _W.TransformReward(env, lambda reward: 2 * float(reward))
    ),
    "stacked": wrapped(lambda env: _W.FrameStackObservation(env, 3)),
    "checked": wrapped(_W.PassiveEnvChecker, _W.OrderEnforcing),
    "scaled": wrapped(_W.NormalizeReward, lambda env: _W.TransformReward(env, float)),
    "aware": wrapped(lambda env: _W.TimeAwareObservation(_W.TimeLimit(env, 30))),
}
