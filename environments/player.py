"""The contract of a player, which plays one kind of environment for the stand-in: habits, and one reply per turn.

Randomness is a function of ids: that of a level of its text, of an episode of its id, of a turn of its seed.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

from ..core.contracts import Answer, Terms
from ..core.plugins import Plugin, Settings, read_settings
from .base import EnvConfig
from .turns import Reply, Turn

_TEN_WORDS = struct.Struct("<10I")

T = TypeVar("T")


class PlayerHabits(Settings):
    """Settings of a player; rates are probabilities per turn unless stated otherwise."""


class Player(Plugin, ABC):
    """Player of one environment. One object serves all its levels and episodes."""

    version: ClassVar[str] = "1"
    """Raised when default habits or their use change: replies, and therefore episode ids, then differ."""
    config_type: ClassVar[type[PlayerHabits]]  # pyright: ignore[reportIncompatibleVariableOverride]
    terms: ClassVar[Terms] = Terms(
        arguments=2,
        answers={"default_habits": Answer(PlayerHabits), "reply": Answer(Reply)},
    )

    def __init__(self, env: str, changes: Mapping[str, Any]) -> None:
        """Set the default habits of the environment ``env``, updated by ``changes``.

        Raises:
            ConfigError: an unknown field, or a number out of range.
        """
        habits = self.default_habits(env).model_dump() | dict(changes)
        super().__init__(read_settings(self.config_type, habits, f"policy scripted, habits of {env}: "))
        self.env = env

    @classmethod
    def default_habits(cls, env: str) -> PlayerHabits:
        """Return the default habits for an environment."""
        del env
        return cls.config_type()

    def check(self, config: EnvConfig) -> None:
        """Check that the player supports these settings of its environment.

        Raises:
            ConfigError: a setting is not supported.
        """

    @abstractmethod
    def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the same turn always gets the same answer.

        Raises:
            ConfigError: the environment offers no information to play by.
        """


def uniforms(seed: int) -> list[float]:
    """Return ten numbers in [0, 1), a function of ``seed`` on every machine."""
    words = _TEN_WORDS.unpack(blake2b(b"%d" % seed, digest_size=_TEN_WORDS.size).digest())
    return [word * 2.0**-32 for word in words]


def bell(draws: Sequence[float]) -> float:
    """Return a nearly normal number of mean 0 and deviation 1: a sum of uniforms needs no library function."""
    return (sum(draws[:6]) - 3.0) * 2.0**0.5


def pick(choices: Sequence[T], draw: float) -> T:
    """Return one of ``choices`` by a number in [0, 1)."""
    return choices[int(draw * len(choices))]
