"""Two stores side by side: what changed from an old policy to a new one, with intervals.

Means are taken over episodes, groups or failures; intervals come from a bootstrap over levels, because the rollouts of
a level go together. Where both stores hold the same levels, these are drawn for both at once, so that what is only due
to the levels drops out of the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..datasets.views import connect, run_query
from ..errors import ConfigError
from ..intervals import Floats, Interval, middle, resampled_means
from ..storage import Address

_MODES = "SELECT DISTINCT env, failure_mode FROM pivots"
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
"""What is compared, each as a query of one value an episode, group or failure. The shares of modes come on top."""
AMOUNTS = frozenset({"return", "pivot step", "slack at the pivot"})
"""The measures that are no shares."""

Sums = dict[str, tuple[float, int]]
"""Sum of the values and their number, by level."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of one environment in both stores. A side without values is None, and then there is no difference."""

    env: str
    measure: str
    old: Interval | None
    new: Interval | None
    difference: Interval | None
    """New less old."""
    paired: bool
    """Whether both sides hold the same levels."""

    @property
    def clear(self) -> bool:
        """Whether the interval of the difference leaves zero out."""
        return self.difference is not None and not self.difference.low <= 0 <= self.difference.high

    def row(self) -> dict[str, Any]:
        """Return it as flat data."""
        row: dict[str, Any] = {"env": self.env, "measure": self.measure}
        for name, estimate in (("old", self.old), ("new", self.new), ("difference", self.difference)):
            for part in ("value", "low", "high"):
                row[name if part == "value" else f"{name}_{part}"] = estimate and getattr(estimate, part)
        return row | {"paired": self.paired, "clear": self.clear}


def compare_stores(old: Address, new: Address, seed: int = 0) -> list[Comparison]:
    """Compare the environments that both stores hold.

    Args:
        old: folder of the store to start from.
        new: folder of the store that is held against it.
        seed: decides the draws of the bootstrap; equal inputs give equal intervals.

    Raises:
        ConfigError: they have no environment in common.
        StoreError: one of them is no finished store.
    """
    before, after = measured(old), measured(new)
    both = [env for env in before if env in after]
    if not both:
        raise ConfigError(
            f"{old} holds {', '.join(before) or 'nothing'}, {new} holds {', '.join(after) or 'nothing'}; expected an "
            "environment that is in both"
        )
    return [
        _compared(env, name, before[env].get(name, {}), after[env].get(name, {}), seed)
        for env in both
        for name in dict.fromkeys([*before[env], *after[env]])
    ]


def measured(root: Address) -> dict[str, dict[str, Sums]]:
    """Return sums and counts by level of every measure: environment, measure, level."""
    sums: dict[str, dict[str, Sums]] = {}
    with connect(root, [*MEASURES.values(), _MODES]) as connection:
        for name, values in MEASURES.items():
            rows = run_query(
                root,
                connection,
                f"SELECT env, task_id, sum(value)::DOUBLE, count(*) FROM ({values}) GROUP BY ALL ORDER BY ALL",
            )[1]
            for env, task, total, count in rows:
                sums.setdefault(env, {}).setdefault(name, {})[task] = (total, count)
        rows = run_query(
            root,
            connection,
            f"""SELECT m.env, m.failure_mode, f.task_id, count(*) FILTER (f.failure_mode = m.failure_mode), count(*)
            FROM ({_MODES}) m JOIN pivots f USING (env) GROUP BY ALL ORDER BY ALL""",
        )[1]
        for env, mode, task, total, count in rows:
            sums[env].setdefault(f"mode {mode}", {})[task] = (float(total), count)
    return sums


def _compared(env: str, name: str, old: Sums, new: Sums, seed: int) -> Comparison:
    if name.startswith("mode "):  # a mode that one store never has is a share of zero there, not an unknown one
        old, new = old or _zeros(new), new or _zeros(old)
    paired = old.keys() == new.keys()
    means_old = _means(old, seed) if old else None
    means_new = _means(new, seed if paired else seed + 1) if new else None
    return Comparison(
        env,
        name,
        None if means_old is None else _interval(_mean(old), means_old),
        None if means_new is None else _interval(_mean(new), means_new),
        None if means_old is None or means_new is None else _interval(_mean(new) - _mean(old), means_new - means_old),
        paired,
    )


def _zeros(sums: Sums) -> Sums:
    return {task: (0.0, count) for task, (_, count) in sums.items()}


def _mean(sums: Sums) -> float:
    return sum(total for total, _ in sums.values()) / sum(count for _, count in sums.values())


def _means(sums: Sums, seed: int) -> Floats:
    """Return the means of resamples of levels; equal seeds draw equal places."""
    totals, counts = np.array([sums[task] for task in sorted(sums)]).T
    return resampled_means(totals, counts, seed)


def _interval(value: float, means: Floats) -> Interval:
    return Interval(value, *middle(means))


HEADER = ("measure", "old", "new", "new - old")


def screen_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return the rows of the table of :data:`HEADER`: shares in percent, a star where the interval leaves zero out."""
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
