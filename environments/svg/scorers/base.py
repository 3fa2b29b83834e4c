"""The interface of a scorer: one target, a batch of canvases, one score each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base import Frame

DECIMALS = 6
"""Scores are rounded, so that sums and logs do not depend on the last bits of a machine's arithmetic."""


@dataclass(frozen=True, slots=True)
class Score:
    """How alike two pictures are."""

    average: float
    """The score of the submission, 0 to 1."""
    parts: Mapping[str, float]
    """The scores it is made of, each 0 to 1 where 1 means alike."""


class Scorer(ABC):
    """Compares pictures; identical ones score exactly 1. Safe to share between threads."""

    name: ClassVar[str]
    version: ClassVar[str]
    """Raised with every change of what is computed."""

    @abstractmethod
    def score(self, target: Frame, canvases: Sequence[Frame]) -> list[Score]:
        """Return the score of every canvas against the target; all are RGB of one shape (height, width, 3)."""

    def check(self) -> None:
        """Find out whether there will be scores.

        Raises:
            ConfigError: there will not; the message says what to do.
        """
        black = np.zeros((256, 256, 3), np.uint8)
        self.score(black, [255 - black])


def rounded(value: float) -> float:
    """Return ``value`` in [0, 1] with :data:`DECIMALS` decimals."""
    return round(min(1.0, max(0.0, float(value))), DECIMALS)
