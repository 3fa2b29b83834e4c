"""Interface of a scorer: a target, a batch of canvases, a score per canvas."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base import Frame

DECIMALS = 6
"""Decimals of scores, which are rounded so that they do not depend on the last bits of a machine's arithmetic."""


@dataclass(frozen=True, slots=True)
class Score:
    """Similarity of two pictures."""

    average: float
    """Score of the submission, 0 to 1."""
    parts: Mapping[str, float]
    """Components of the score, each 0 to 1; 1 means identical."""


class Scorer(ABC):
    """Scorer of picture similarity; identical pictures score exactly 1. Instances are thread-safe."""

    name: ClassVar[str]
    version: ClassVar[str]
    """Version, increased with every change of the computation."""

    @abstractmethod
    def score(self, target: Frame, canvases: Sequence[Frame]) -> list[Score]:
        """Return the score of every canvas against the target; all are RGB of one shape (height, width, 3)."""

    def check(self) -> None:
        """Check that the scorer works.

        Raises:
            ConfigError: the scorer does not work; the message says what to do.
        """
        black = np.zeros((256, 256, 3), np.uint8)
        self.score(black, [255 - black])


def rounded(value: float) -> float:
    """Return ``value`` in [0, 1] with :data:`DECIMALS` decimals."""
    return round(min(1.0, max(0.0, float(value))), DECIMALS)
