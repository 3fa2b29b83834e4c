"""Figures of an Analyzer from readings and labels: shares with intervals over levels, confusion, reliability.

Pure functions of numbers, independent of models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...intervals import RESAMPLES, middle, resampled_means, sums_by_level

BINS = 10
"""Number of bins of equal width, for the reliability of probabilities."""

UNREAD = "unreadable"
"""Name of unreadable replies in tables of confusion."""


@dataclass(frozen=True, slots=True)
class ScoredReading:
    """Label and reading of one record."""

    env: str
    level: str
    """Canonical level; records of one level are not independent."""
    num_steps: int
    pivot_step: int
    failure_mode: str
    read_step: int
    """Step in the reply; the fallback's if the reply cannot be read."""
    read_mode: str
    readable: bool
    probability: float | None = None
    """The model's own probability of its step."""

    @property
    def step_is_right(self) -> bool:
        """Whether the reply is readable and names the pivot."""
        return self.readable and self.read_step == self.pivot_step

    @property
    def step_is_near(self) -> bool:
        """Whether the reply is readable and names a step at most one away from the pivot."""
        return self.readable and abs(self.read_step - self.pivot_step) <= 1

    @property
    def mode_is_right(self) -> bool:
        """Whether the reply is readable and names the mode."""
        return self.readable and self.read_mode == self.failure_mode

    @property
    def both_are_right(self) -> bool:
        """Whether the reply is readable and names pivot and mode."""
        return self.step_is_right and self.mode_is_right

    @property
    def fallback_step_is_right(self) -> bool:
        """Whether the step that training would use is the pivot; for an unreadable reply that is the last step."""
        return self.read_step == self.pivot_step


SHARES = {
    "parsed": "readable",
    "pivot exact": "step_is_right",
    "pivot within 1": "step_is_near",
    "mode": "mode_is_right",
    "joint": "both_are_right",
    "pivot, fallback counted": "fallback_step_is_right",
}
"""Property of :class:`ScoredReading` of which a share is the mean, by the share's name in tables."""


@dataclass(frozen=True, slots=True)
class Share:
    """A mean of numbers between 0 and 1, with its interval."""

    value: float
    low: float
    high: float
    records: int

    def row(self) -> dict[str, Any]:
        """Return the share as JSON data."""
        return {"value": self.value, "low": self.low, "high": self.high, "records": self.records}

    def __str__(self) -> str:
        """Return the share in percent."""
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def share(values: Sequence[float], levels: Sequence[str], seed: int = 0, resamples: int = RESAMPLES) -> Share:
    """Return the mean of ``values`` with its percentile interval by bootstrap over ``levels``.

    Records of a single level do not generalise: their interval is 0 to 1.

    Args:
        values: one number per record, 0 to 1; at least one.
        levels: level of each record; each resample draws whole levels with replacement, as many as there are.
        seed: seed of the resamples; equal inputs give equal intervals.
        resamples: number of resamples.

    Raises:
        ValueError: there are no records, or the lengths differ.
    """
    sums, counts = sums_by_level(values, levels)
    mean = float(sums.sum() / counts.sum())
    if len(sums) == 1:
        return Share(mean, 0.0, 1.0, len(values))
    low, high = middle(resampled_means(sums, counts, seed, resamples))
    return Share(mean, low, high, len(values))


def shares(records: Sequence[ScoredReading], seed: int = 0) -> dict[str, Share]:
    """Return every share of ``SHARES`` over some records."""
    levels = [each.level for each in records]
    return {
        name: share([float(getattr(each, which)) for each in records], levels, seed) for name, which in SHARES.items()
    }


def by_step(records: Sequence[ScoredReading], seed: int = 0) -> dict[int, Share]:
    """Return the share of named pivots by true pivot step."""
    return {
        step: _exact([each for each in records if each.pivot_step == step], seed)
        for step in sorted({each.pivot_step for each in records})
    }


def by_mode(records: Sequence[ScoredReading], seed: int = 0) -> dict[str, dict[str, Share]]:
    """Return all shares by true failure mode."""
    return {
        mode: shares([each for each in records if each.failure_mode == mode], seed)
        for mode in sorted({each.failure_mode for each in records})
    }


def _exact(records: Sequence[ScoredReading], seed: int) -> Share:
    return share([float(each.step_is_right) for each in records], [each.level for each in records], seed)


def confusion(records: Sequence[ScoredReading], what: str) -> dict[str, dict[str, int]]:
    """Return counts by true and read name; ``what`` is ``mode`` or ``step``. Unreadable replies have a column."""

    def names(each: ScoredReading) -> tuple[str, str]:
        true, read = (
            (each.failure_mode, each.read_mode) if what == "mode" else (str(each.pivot_step), str(each.read_step))
        )
        return true, read if each.readable else UNREAD

    pairs = [names(each) for each in records]
    key = int if what == "step" else str
    rows = sorted({true for true, _ in pairs}, key=key)
    columns = sorted({*rows, *(read for _, read in pairs if read != UNREAD)}, key=key)
    columns += [UNREAD] if any(read == UNREAD for _, read in pairs) else []
    return {row: {column: pairs.count((row, column)) for column in columns} for row in rows}


@dataclass(frozen=True, slots=True)
class Bin:
    """Readings whose probability is in a range."""

    low: float
    high: float
    records: int
    mean_probability: float
    accuracy: float
    """Share of the readings that name the pivot."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Reliability of the probabilities that a model assigns to its own steps."""

    bins: tuple[Bin, ...]
    """Bins with at least one record."""
    error: float
    """Expected calibration error: mean distance of probability and accuracy over bins, weighted by records."""
    records: int

    def row(self) -> dict[str, Any]:
        """Return the reliability as JSON data."""
        return {
            "bins": [asdict(each) for each in self.bins],
            "expected_calibration_error": self.error,
            "records": self.records,
        }


def reliability(records: Sequence[ScoredReading], bins: int = BINS) -> Reliability | None:
    """Return the reliability over the readings with a probability; None if there are none."""
    rated = [(each.probability, each.step_is_right) for each in records if each.probability is not None]
    if not rated:
        return None
    by_bin: Mapping[int, list[tuple[float, bool]]] = {
        index: [pair for pair in rated if min(int(pair[0] * bins), bins - 1) == index] for index in range(bins)
    }
    filled = tuple(
        Bin(
            index / bins,
            (index + 1) / bins,
            len(pairs),
            sum(probability for probability, _ in pairs) / len(pairs),
            sum(right for _, right in pairs) / len(pairs),
        )
        for index, pairs in by_bin.items()
        if pairs
    )
    error = sum(each.records * abs(each.mean_probability - each.accuracy) for each in filled) / len(rated)
    return Reliability(filled, error, len(rated))
