"""Compare two stores: what changed from one policy to another, with confidence intervals.

Means are taken over episodes, groups or failures. Intervals come from a bootstrap over levels, because the rollouts of
a level are alike. A resample draws a level for both stores at once, with all its values in each of them, also where one
store has no failure in it: what is only due to the levels drops out of the difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import ConfigError
from ..core.intervals import Floats, Interval, middle, resampled_sums
from ..core.storage import Address
from ..datasets.sql.views import connect, run_query

MEASURES = {
    "success": "SELECT env, task_id, (NOT failed)::INT AS value FROM episodes WHERE status = 'complete'",
    "return": "SELECT env, task_id, episode_return AS value FROM episodes WHERE status = 'complete'",
    "all-fail groups": "SELECT env, task_id, all_fail::INT AS value FROM groups",
    "σ = 0 groups": "SELECT env, task_id, sigma0::INT AS value FROM groups",
    "pivot step": "SELECT env, task_id, pivot_step AS value FROM pivots",
    "slack at the pivot": "SELECT env, task_id, slack AS value FROM pivots WHERE slack IS NOT NULL",
    "turns after the pivot": "SELECT env, task_id, lead AS value FROM pivots",
    "labels accepted": "SELECT env, task_id, accepted::INT AS value FROM failures",
}
"""Compared measures, each as a query of one value per episode, group or failure. Shares of failure modes are added."""
_MODES = "SELECT env, task_id, failure_mode FROM pivots"
_LEVELS = "SELECT env, task_id FROM episodes"
AMOUNTS = frozenset({"return", "pivot step", "slack at the pivot"})
"""Measures that are amounts, not shares."""

RESAMPLES = 10_000
"""Resamples per environment: with another seed a bound moves by about one hundredth of the interval's width."""

Sums = dict[str, tuple[float, int]]
"""Sum of the values and their number, by level."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Values of one environment in one store."""

    levels: frozenset[str]
    """All levels, also those without a value of a measure."""
    measures: Mapping[str, Sums]

    def sums(self, name: str) -> Sums:
        """Return the values of a measure; a failure mode that a store never has is zero in all its failures."""
        if name.startswith("mode ") and name not in self.measures:
            return {level: (0.0, count) for level, (_, count) in self.measures.get("pivot step", {}).items()}
        return self.measures.get(name, {})


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of one environment in both stores: None for a store without values.

    A difference needs values of at least two levels in each store, otherwise nothing is known about other levels.
    """

    env: str
    measure: str
    old: Interval | None
    new: Interval | None
    difference: Interval | None
    """New minus old."""
    levels: int
    """Number of levels in either store."""
    common: int
    """Number of levels in both stores."""

    @property
    def paired(self) -> bool:
        """Whether both stores have the same levels."""
        return self.common == self.levels

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.difference is not None and not self.difference.low <= 0 <= self.difference.high

    def row(self) -> dict[str, Any]:
        """Return the comparison as flat data."""
        row: dict[str, Any] = {"env": self.env, "measure": self.measure}
        for name, estimate in (("old", self.old), ("new", self.new), ("difference", self.difference)):
            for part in ("value", "low", "high"):
                row[name if part == "value" else f"{name}_{part}"] = estimate and getattr(estimate, part)
        return row | {"levels": self.levels, "common": self.common, "paired": self.paired, "clear": self.clear}


def compare_stores(old: Address, new: Address, seed: int = 0) -> list[Comparison]:
    """Compare the environments that both stores have.

    Args:
        old: folder of the earlier store.
        new: folder of the later store.
        seed: seed of the bootstrap; equal inputs give equal intervals.

    Raises:
        ConfigError: the stores have no environment in common.
        StoreError: a folder is not a finished store.
    """
    before, after = measured(old), measured(new)
    both = [env for env in before if env in after]
    if not both:
        raise ConfigError(
            f"{old} holds {', '.join(before) or 'nothing'}, {new} holds {', '.join(after) or 'nothing'}; expected an "
            "environment that is in both"
        )
    return [each for env in both for each in compare_measured(env, before[env], after[env], seed)]


def measured(root: Address) -> dict[str, Measured]:
    """Return the levels, and the sums by level of every measure, of each environment of a store."""
    with connect(root, [*MEASURES.values(), _MODES, _LEVELS]) as connection:

        def rows(select: str) -> list[tuple[Any, ...]]:
            return run_query(root, connection, f"{select} GROUP BY ALL ORDER BY ALL")[1]

        levels: dict[str, set[str]] = {}
        for env, task in rows(_LEVELS):
            levels.setdefault(env, set()).add(task)
        sums: dict[str, dict[str, Sums]] = {env: {} for env in levels}
        for name, values in MEASURES.items():
            for env, task, total, count in rows(f"SELECT env, task_id, sum(value)::DOUBLE, count(*) FROM ({values})"):
                sums[env].setdefault(name, {})[task] = (total, count)
        modes = rows(f"SELECT env, failure_mode, task_id, count(*) FROM ({_MODES})")
    result = {env: Measured(frozenset(levels[env]), measures) for env, measures in sums.items()}
    for env, mode, task, count in modes:
        name = f"mode {mode}"
        sums[env].setdefault(name, result[env].sums(name))[task] = (float(count), sums[env]["pivot step"][task][1])
    return result


def compare_measured(env: str, old: Measured, new: Measured, seed: int = 0) -> list[Comparison]:
    """Compare one environment of two stores; ``seed`` is that of :func:`compare_stores`."""
    names = list(dict.fromkeys([*old.measures, *new.measures]))
    common = old.levels & new.levels
    # Levels of one store only are resampled among themselves: every resample has as many of each kind as the stores.
    kinds = [sorted(kind) for kind in (common, old.levels - common, new.levels - common) if kind]
    sides = [side.sums(name) for name in names for side in (old, new)]
    tables = [
        np.array([[part for side in sides for part in side.get(level, (0, 0))] for level in levels], float)
        for levels in kinds
    ]
    everything = np.concatenate(tables)
    resampled = sum(resampled_sums(table, seed + place, RESAMPLES) for place, table in enumerate(tables))
    totals = np.vstack([everything.sum(axis=0), resampled])
    sums, counts = np.moveaxis(totals.reshape(len(totals), len(names), 2, 2), -1, 0)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    before, after = np.moveaxis(means, -1, 0)
    difference = after - before
    with_values = (everything.reshape(len(everything), len(names), 2, 2)[..., 1] > 0).sum(axis=0)
    difference[:, with_values.min(axis=1) < 2] = np.nan
    return [
        Comparison(env, name, *map(_interval, columns), levels=len(everything), common=len(common))
        for name, *columns in zip(names, before.T, after.T, difference.T, strict=True)
    ]


def _interval(means: Floats) -> Interval | None:
    """Return the first mean with the bounds that the others give: means of resamples, NaN in those without values."""
    resampled = means[1:]
    return None if np.isnan(means[0]) else Interval(float(means[0]), *middle(resampled[~np.isnan(resampled)]))


HEADER = ("measure", "old", "new", "new - old")


def screen_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return the rows of the table of :data:`HEADER`: shares in percent, a star where the interval excludes zero."""
    return [_screen_row(each) for each in comparisons]


def _screen_row(each: Comparison) -> tuple[str, ...]:
    scale, unit = (1, "") if each.measure in AMOUNTS else (100, " %")
    digits = 1 if unit else 2
    old, new = ("-" if side is None else f"{scale * side.value:.{digits}f}{unit}" for side in (each.old, each.new))
    if each.difference is None:
        return each.measure, old, new, "-"
    value, low, high = (scale * part for part in (each.difference.value, each.difference.low, each.difference.high))
    star = " *" if each.clear else ""
    return each.measure, old, new, f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]{star}"
