"""The failures to look at first: those of the view ``instructive``, diverse by environment, mode, step and level.

One after the other is chosen: the failure with most merits, less one for each chosen failure that shares its
environment, mode, step, or level.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.storage import Address
from ..datasets.sql.views import connect, run_query


def instructive(
    root: Address, count: int, environments: Sequence[str] = (), among: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Return the most instructive failures of a store, finished or not, as rows of the view ``instructive``.

    ``among`` are the ids of the episodes to choose from; all by default.

    Raises:
        StoreError: the store is missing, or one of its files is missing or torn.
    """
    names = "', '".join(name.replace("'", "''") for name in among or ())
    where = "" if among is None else f"WHERE episode_id IN ('{names}')"
    # Of failures that share mode and step only the first ones can be chosen.
    sql = f"""FROM instructive {where} QUALIFY row_number() OVER (
        PARTITION BY env, failure_mode, pivot_step ORDER BY merits DESC, slack DESC NULLS LAST, episode_id) <= {count}
        ORDER BY merits DESC, slack DESC NULLS LAST, episode_id"""
    with connect(root, [sql], unfinished=True) as connection:
        columns, all_rows = run_query(root, connection, sql)
    rows = [dict(zip(columns, row, strict=True)) for row in all_rows]
    rows = [row for row in rows if not environments or row["env"] in environments]
    chosen: list[dict[str, Any]] = []
    seen: Counter[tuple[str, ...]] = Counter()
    while rows and len(chosen) < count:
        best = max(rows, key=lambda row: row["merits"] - sum(seen[key] for key in _keys(row)))
        chosen.append(best)
        seen.update(_keys(best))
        rows.remove(best)
    return chosen


def _keys(row: dict[str, Any]) -> list[tuple[str, ...]]:
    return [(row["env"], name, str(row[name])) for name in ("env", "failure_mode", "pivot_step", "task_id")]


def reasons(row: dict[str, Any]) -> str:
    """Return why a failure is instructive, in words."""
    parts: list[str] = []
    if row["slack"] is not None:
        slack = f"{row['slack']:g}"
        parts.append(f"{slack} turn{'s' * (slack != '1')} to spare" if row["slack"] > 0 else "no turn to spare")
    if safe := row["safe_actions"]:
        parts.append(f"only {safe[0]} was safe" if len(safe) == 1 else f"{len(safe)} actions were safe")
    if row["solved_by"]:
        solved, here = row["solved_by"], row["solved_from_here"]
        state = " from this state" if solved == here else f", {here} of them from this state" if here else ""
        parts.append(f"solved by {solved} other rollout{'s' * (solved != 1)}{state}")
    return "; ".join(parts)


def stacked(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Return RGB pictures below each other, on white."""
    width = max(each.shape[1] for each in pictures)
    return np.vstack(
        [np.pad(each, ((0, 0), (0, width - each.shape[1]), (0, 0)), constant_values=255) for each in pictures]
    )
