"""95 % intervals over levels: episodes of a level are similar, so levels are the independent units.

A share has Wilson's interval with the number of independent records that its levels are worth (Korn and Graubard 1998),
an amount has Student's, and the difference of two has the bounds of both, less what their levels share (Zou and Donner
2008). A few levels that decide the variance count as few: the degrees of freedom come from the spread of the squares.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST = 3
"""Minimum number of levels for an interval; fewer say too little about other levels."""

NORMAL = 1.959963984540054
"""Quantile 0.975 of the normal distribution."""
LEAST_FREEDOM = 4.0
"""Minimum degrees of freedom after the correction for unequal variances, given enough levels."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with the bounds of its confidence interval; below three levels these are the limits of the number."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return value and bounds with three digits."""
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated number with the influence of each level on it."""

    value: float
    influence: Floats
    """Shape (levels,); the sum of its squares is the variance of the number."""
    records: float
    """Number of values behind a share, an upper bound of its independent values; infinite for means of fractions."""

    @property
    def variance(self) -> float:
        """Variance between samples of as many levels."""
        return float((self.influence**2).sum())

    def share(self) -> Interval:
        """Return the interval of a number between 0 and 1; without any spread, each level counts once."""
        levels = len(self.influence)
        if levels < LEAST:
            return Interval(self.value, 0.0, 1.0)
        variance, binomial = self.variance, self.value * (1 - self.value)
        if binomial <= 1e-12:
            records, wide = float(levels), NORMAL
        else:
            records = min(self.records, binomial / variance if variance > 0 else levels)
            wide = student(self._freedom())
        scale = 1 + wide**2 / records
        centre = (self.value + wide**2 / (2 * records)) / scale
        half = wide / scale * math.sqrt(max(0.0, binomial) / records + wide**2 / (4 * records**2))
        # The value itself is never outside by a rounding error.
        return Interval(self.value, min(self.value, max(0.0, centre - half)), max(self.value, min(1.0, centre + half)))

    def amount(self) -> Interval:
        """Return the interval of a number without limits."""
        if len(self.influence) < LEAST:
            return Interval(self.value, -math.inf, math.inf)
        half = student(self._freedom()) * math.sqrt(self.variance)
        return Interval(self.value, self.value - half, self.value + half)

    def _freedom(self) -> float:
        """Return the degrees of freedom by Satterthwaite's rule, at most one less than the levels."""
        levels, variance, fourth = len(self.influence), self.variance, float((self.influence**4).sum())
        spread = fourth - variance**2 / levels
        most = levels - 1.0
        return most if spread <= 1e-9 * fourth else min(most, max(LEAST_FREEDOM, 2 * variance**2 / spread))


def student(freedom: float) -> float:
    """Return the quantile 0.975 of Student's distribution, for 2 and at least 3 degrees of freedom.

    From 3 on by the expansion of Fisher and Cornish (Abramowitz and Stegun 26.7.5), wrong by less than 0.2 %.
    """
    if freedom < 3:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    powers = [NORMAL**power for power in range(10)]
    terms = (
        (4, {3: 1, 1: 1}),
        (96, {5: 5, 3: 16, 1: 3}),
        (384, {7: 3, 5: 19, 3: 17, 1: -15}),
        (92160, {9: 79, 7: 776, 5: 1482, 3: -1920, 1: -945}),
    )
    return NORMAL + sum(
        sum(factor * powers[power] for power, factor in factors.items()) / (divisor * freedom ** (place + 1))
        for place, (divisor, factors) in enumerate(terms)
    )


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


def mean_of(sums: Floats, counts: Floats) -> Estimate:
    """Return the mean of all values: the sum of the sums by level over the sum of their counts, shape (levels,) each.

    Every level has values.

    Raises:
        ValueError: there are no values.
    """
    records = float(counts.sum())
    if not records:
        raise ValueError("no values; expected at least one")
    estimate = figure_of(np.stack([sums, counts], axis=1), lambda totals: totals[:, 0] / totals[:, 1])
    return Estimate(estimate.value, estimate.influence, records if (sums == np.rint(sums)).all() else math.inf)


def figure_of(summands: Floats, figure: Callable[[Floats], Floats]) -> Estimate:
    """Return any figure of sums over levels, its influences by leaving out one level at a time (jackknife).

    Args:
        summands: what each level adds to the sums; shape (levels, columns).
        figure: function from sums of shape (n, columns) to figures of shape (n,).
    """
    levels, total = len(summands), summands.sum(axis=0, keepdims=True)
    value = float(figure(total)[0])
    if levels < 2:
        return Estimate(value, np.zeros(levels), math.inf)
    without = figure(total - summands)
    return Estimate(value, (without.mean() - without) * math.sqrt((levels - 1) / levels), math.inf)


def difference(old: Interval, new: Interval, correlation: float) -> Interval:
    """Return new minus old with its interval.

    Args:
        old: the earlier number with its interval.
        new: the later one.
        correlation: correlation of the two over samples of levels; 0 if they share no level.
    """

    def reach(first: float, second: float) -> float:
        return math.sqrt(max(0.0, first**2 + second**2 - 2 * correlation * first * second))

    value = new.value - old.value
    return Interval(
        value,
        value - reach(new.value - new.low, old.high - old.value),
        value + reach(new.high - new.value, old.value - old.low),
    )
