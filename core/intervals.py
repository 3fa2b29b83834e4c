"""Intervals by bootstrap over levels: episodes of one level are alike, so the unit that is drawn is the level.

As many levels are drawn with replacement as there are, each with all of its values; an interval is the middle 95 % of
the means of many such draws. Equal inputs give equal intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .identity import derive_seed

Floats = NDArray[np.float64]

RESAMPLES = 2000
"""Resamples of the levels per interval: with another seed its bounds move by about a tenth of its width."""
LEVEL = 0.95
_DRAWS_TOGETHER = 200_000
"""Levels sampled at a time: all resamples of ten thousand levels at once would take 160 MB."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with the bounds of its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return value and bounds with three digits."""
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def sums_by_level(values: Sequence[float], levels: Sequence[str]) -> tuple[Floats, Floats]:
    """Return the sum and the number of the values of each level, in the order in which levels first appear.

    Raises:
        ValueError: the values are empty, or not as many as the levels.
    """
    if not len(values) or len(values) != len(levels):
        raise ValueError(f"{len(values)} values of {len(levels)} records; expected one per record, and at least one")
    places = {level: place for place, level in enumerate(dict.fromkeys(levels))}
    index = np.array([places[level] for level in levels])
    sums = np.bincount(index, weights=np.asarray(values, float), minlength=len(places)).astype(float)
    return sums, np.bincount(index, minlength=len(places)).astype(float)


def resampled_means(sums: Floats, counts: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Return the means of resamples, each of as many levels as there are; shape (resamples,)."""
    totals, numbers = resampled_sums(np.stack([sums, counts], axis=1), seed, resamples).T
    return totals / numbers


def resampled_sums(values: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Return the sums over the levels of each resample, which has as many levels as there are.

    Args:
        values: one row per level; shape (levels, columns).
        seed: seed of the draws; equal inputs give equal sums.
        resamples: number of resamples.

    Returns:
        Array of shape (resamples, columns). All columns share the draws.
    """
    rng = np.random.Generator(np.random.PCG64(derive_seed("bootstrap", seed)))
    levels = len(values)
    sums = np.empty((resamples, values.shape[1]))
    together = max(1, _DRAWS_TOGETHER // levels)
    for start in range(0, resamples, together):
        rows = min(together, resamples - start)
        drawn = rng.integers(levels, size=(rows, levels)) + levels * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * levels).reshape(rows, levels).astype(float)
        # Not with @: the threads of BLAS take a hundred times longer where other processes use the cores.
        sums[start : start + rows] = np.einsum("rl,lc->rc", times, values)
    return sums


def middle(means: Floats) -> tuple[float, float]:
    """Return the bounds of the interval that the means of resamples give."""
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
