"""Compare two stores: the differences between two policies, with confidence intervals.

Means are taken over episodes, groups or failures. Intervals are over levels, because the rollouts of a level are alike.
Levels of equal state and instruction are one level in both stores, whatever the other settings: what is only due to the
levels drops out of the difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from ..core.errors import ConfigError
from ..core.intervals import LEAST, Estimate, Interval, difference, mean_of
from ..core.storage import Address
from ..datasets.sql.views import connect, run_query

_PIVOTS = "pivots JOIN (SELECT DISTINCT episode_id, group_id FROM episodes) USING (episode_id)"
MEASURES = {
    "success": "SELECT env, group_id, (NOT failed)::INT AS value FROM episodes WHERE status = 'complete'",
    "return": "SELECT env, group_id, episode_return AS value FROM episodes WHERE status = 'complete'",
    "all-fail groups": "SELECT env, group_id, all_fail::INT AS value FROM groups",
    "σ = 0 groups": "SELECT env, group_id, sigma0::INT AS value FROM groups",
    "pivot step": f"SELECT env, group_id, pivot_step AS value FROM {_PIVOTS}",
    "slack at the pivot": f"SELECT env, group_id, slack AS value FROM {_PIVOTS} WHERE slack IS NOT NULL",
    "turns after the pivot": f"SELECT env, group_id, lead AS value FROM {_PIVOTS}",
    "labels accepted": "SELECT env, group_id, accepted::INT AS value FROM failures",
}
"""Compared measures, each as a query of one value per episode, group or failure. Shares of failure modes are added."""
_MODES = f"SELECT env, group_id, failure_mode FROM {_PIVOTS}"
_LEVELS = "SELECT env, group_id, md5(concat_ws(chr(10), initial_state, instruction)) FROM episodes"
AMOUNTS = frozenset({"return", "pivot step", "slack at the pivot"})
"""Measures that are amounts, not shares."""

STARRED = 20
"""Least number of levels in each store for a star: with fewer, intervals exclude zero too often by chance."""

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
    """One measure of one environment in both stores; None for a store without values.

    A difference needs values of at least three levels in each store, otherwise nothing is known about other levels.
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
    least: int
    """Number of levels with values, in the store that has fewer."""

    @property
    def paired(self) -> bool:
        """Whether both stores have the same levels."""
        return self.common == self.levels

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference excludes zero, over enough levels."""
        few = self.least < STARRED
        return not few and self.difference is not None and not self.difference.low <= 0 <= self.difference.high

    def row(self) -> dict[str, Any]:
        """Return the comparison as flat data."""
        row: dict[str, Any] = {"env": self.env, "measure": self.measure}
        for name, estimate in (("old", self.old), ("new", self.new), ("difference", self.difference)):
            for part in ("value", "low", "high"):
                number = None if estimate is None else getattr(estimate, part)
                row[name if part == "value" else f"{name}_{part}"] = (
                    number if number is None or isfinite(number) else None
                )
        return row | {"levels": self.levels, "common": self.common, "paired": self.paired, "clear": self.clear}


def compare_stores(old: Address, new: Address) -> list[Comparison]:
    """Compare the environments that both stores have.

    Args:
        old: folder of the earlier store.
        new: folder of the later store.

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
    return [each for env in both for each in compare_measured(env, before[env], after[env])]


def measured(root: Address) -> dict[str, Measured]:
    """Return the levels, and the sums by level of every measure, of each environment of a store."""
    with connect(root, [*MEASURES.values(), _MODES, _LEVELS]) as connection:

        def rows(select: str) -> list[tuple[Any, ...]]:
            return run_query(root, connection, f"{select} GROUP BY ALL ORDER BY ALL")[1]

        levels = {(env, group): level for env, group, level in rows(_LEVELS)}
        sums: dict[str, dict[str, Sums]] = {env: {} for env, _ in levels}

        def add(env: str, name: str, group: str, total: float, count: int) -> None:
            of_level = sums[env].setdefault(name, {})
            before, number = of_level.get(levels[env, group], (0.0, 0))
            of_level[levels[env, group]] = (before + total, number + count)

        for name, values in MEASURES.items():
            for env, group, total, count in rows(f"SELECT env, group_id, sum(value)::DOUBLE, count(*) FROM ({values})"):
                add(env, name, group, total, count)
        modes = rows(f"SELECT env, failure_mode, group_id, count(*) FROM ({_MODES})")
    for env, mode, group, count in modes:
        add(env, f"mode {mode}", group, float(count), 0)
    for measures in sums.values():
        for name in [name for name in measures if name.startswith("mode ")]:
            counts = measures["pivot step"]
            measures[name] = {level: (measures[name].get(level, (0.0, 0))[0], counts[level][1]) for level in counts}
    own = {env: frozenset(level for (of, _), level in levels.items() if of == env) for env in sums}
    return {env: Measured(own[env], measures) for env, measures in sums.items()}


def compare_measured(env: str, old: Measured, new: Measured) -> list[Comparison]:
    """Compare one environment of two stores."""
    together, common = len(old.levels | new.levels), len(old.levels & new.levels)
    compared: list[Comparison] = []
    for name in dict.fromkeys([*old.measures, *new.measures]):
        (before, theirs), (after, ours) = (_estimate(side.sums(name)) for side in (old, new))
        first, second = (each and (each.amount() if name in AMOUNTS else each.share()) for each in (before, after))
        least, change = min(len(theirs), len(ours)), None
        if least >= LEAST and first is not None and second is not None:
            change = difference(first, second, _correlation(theirs, ours))
        compared.append(Comparison(env, name, first, second, change, together, common, least))
    return compared


def _estimate(sums: Sums) -> tuple[Estimate | None, dict[str, float]]:
    """Return the mean, None without values, and the influence of each level on it."""
    some = {level: both for level, both in sums.items() if both[1]}
    if not some:
        return None, {}
    estimate = mean_of(*np.array([*some.values()], float).T)
    return estimate, dict(zip(some, estimate.influence.tolist(), strict=True))


def _correlation(old: Mapping[str, float], new: Mapping[str, float]) -> float:
    """Return the correlation of two means over their common levels."""
    scale = float(np.linalg.norm([*old.values()]) * np.linalg.norm([*new.values()]))
    shared = sum(influence * new[level] for level, influence in old.items() if level in new)
    return min(1.0, max(-1.0, shared / scale)) if scale else 0.0


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
