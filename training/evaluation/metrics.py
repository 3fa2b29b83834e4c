"""How good an Analyzer is, from readings and labels alone: shares with intervals over levels, confusion, reliability.

Pure functions of numbers; nothing here knows a model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...intervals import RESAMPLES, middle, resampled_means, sums_by_level

BINS = 10
"""Of equal width, for the reliability of probabilities."""

UNREAD = "unreadable"
"""Name of what an unreadable reply says, in tables of confusion."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A label and what was read, of one record."""

    env: str
    level: str
    """Canonical level, equal for records that may be alike."""
    num_steps: int
    pivot_step: int
    failure_mode: str
    read_step: int
    """What the reply says; the fallback's where it says nothing."""
    read_mode: str
    readable: bool
    probability: float | None = None
    """The model's own for the step that it names."""

    @property
    def step_is_right(self) -> bool:
        """Whether a readable reply names the pivot."""
        return self.readable and self.read_step == self.pivot_step

    @property
    def step_is_near(self) -> bool:
        """Whether it names a step at most one away."""
        return self.readable and abs(self.read_step - self.pivot_step) <= 1

    @property
    def mode_is_right(self) -> bool:
        """Whether it names the mode."""
        return self.readable and self.read_mode == self.failure_mode

    @property
    def both_are_right(self) -> bool:
        """Whether it names both."""
        return self.step_is_right and self.mode_is_right

    @property
    def fallback_step_is_right(self) -> bool:
        """Whether the step that training would use is the pivot: that of an unreadable reply is the last one."""
        return self.read_step == self.pivot_step


SHARES = {
    "parsed": "readable",
    "pivot exact": "step_is_right",
    "pivot within 1": "step_is_near",
    "mode": "mode_is_right",
    "joint": "both_are_right",
    "pivot, fallback counted": "fallback_step_is_right",
}
"""Names in tables, and the property of :class:`Scored` that each is the share of."""


@dataclass(frozen=True, slots=True)
class Share:
    """A mean of numbers between 0 and 1, with its interval."""

    value: float
    low: float
    high: float
    records: int

    def row(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"value": self.value, "low": self.low, "high": self.high, "records": self.records}

    def __str__(self) -> str:
        """Return it in percent."""
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def share(values: Sequence[float], levels: Sequence[str], seed: int = 0, resamples: int = RESAMPLES) -> Share:
    """Return the mean of ``values`` with its percentile interval by bootstrap over ``levels``.

    Records of a single level say nothing about others: their interval is everything.

    Args:
        values: one a record, 0 to 1; at least one.
        levels: of each record; as many levels are drawn with replacement as there are, each with all its records.
        seed: decides the draws; equal inputs give equal intervals.
        resamples: how many times.

    Raises:
        ValueError: there is no record, or not a level for each.
    """
    sums, counts = sums_by_level(values, levels)
    mean = float(sums.sum() / counts.sum())
    if len(sums) == 1:
        return Share(mean, 0.0, 1.0, len(values))
    low, high = middle(resampled_means(sums, counts, seed, resamples))
    return Share(mean, low, high, len(values))


def shares(records: Sequence[Scored], seed: int = 0) -> dict[str, Share]:
    """Return every share of ``SHARES`` over some records."""
    levels = [each.level for each in records]
    return {
        name: share([float(getattr(each, which)) for each in records], levels, seed) for name, which in SHARES.items()
    }


def by_step(records: Sequence[Scored], seed: int = 0) -> dict[int, Share]:
    """Return the share of named pivots by true pivot step."""
    return {
        step: _exact([each for each in records if each.pivot_step == step], seed)
        for step in sorted({each.pivot_step for each in records})
    }


def by_mode(records: Sequence[Scored], seed: int = 0) -> dict[str, dict[str, Share]]:
    """Return all shares by true failure mode."""
    return {
        mode: shares([each for each in records if each.failure_mode == mode], seed)
        for mode in sorted({each.failure_mode for each in records})
    }


def _exact(records: Sequence[Scored], seed: int) -> Share:
    return share([float(each.step_is_right) for each in records], [each.level for each in records], seed)


def confusion(records: Sequence[Scored], what: str) -> dict[str, dict[str, int]]:
    """Count what was read by what is true; ``what`` is ``mode`` or ``step``. Unreadable replies have a column."""

    def names(each: Scored) -> tuple[str, str]:
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
    """Readings whose probability lies in a range."""

    low: float
    high: float
    records: int
    mean_probability: float
    accuracy: float
    """Share of them that name the pivot."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the probabilities that a model gives its own steps can be trusted."""

    bins: tuple[Bin, ...]
    """Those that hold a record."""
    error: float
    """Expected calibration error: mean distance of probability and accuracy over bins, weighed by records."""
    records: int

    def row(self) -> dict[str, Any]:
        """Return it as JSON data."""
        bins = [
            {
                "low": each.low,
                "high": each.high,
                "records": each.records,
                "mean_probability": each.mean_probability,
                "accuracy": each.accuracy,
            }
            for each in self.bins
        ]
        return {"bins": bins, "expected_calibration_error": self.error, "records": self.records}


def reliability(records: Sequence[Scored], bins: int = BINS) -> Reliability | None:
    """Return the reliability over the readings that have a probability; None where none has."""
    known = [(each.probability, each.step_is_right) for each in records if each.probability is not None]
    if not known:
        return None
    filled: Mapping[int, list[tuple[float, bool]]] = {
        place: [pair for pair in known if min(int(pair[0] * bins), bins - 1) == place] for place in range(bins)
    }
    made = tuple(
        Bin(
            place / bins,
            (place + 1) / bins,
            len(pairs),
            sum(probability for probability, _ in pairs) / len(pairs),
            sum(right for _, right in pairs) / len(pairs),
        )
        for place, pairs in filled.items()
        if pairs
    )
    error = sum(each.records * abs(each.mean_probability - each.accuracy) for each in made) / len(known)
    return Reliability(made, error, len(known))
