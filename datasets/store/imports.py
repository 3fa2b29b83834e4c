"""The table of imports, which only a store of imported episodes has, and its audit, stored as ``audit.json``.

The audit says how the source was read, with sums over the rows of the table, so that ``pivot verify`` makes them again.
The options and remedies are those of the command and of its output; nothing in the store proves them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ...rollouts.policies.imported import Imported
from .schema import TableSchema, columns_of

IMPORTS = TableSchema(
    "imports",
    "One row per episode of the source of an imported store, those left out included; other stores have none.",
    columns_of(Imported),
)

COUNTED = ("turns", "unread_turns", "dropped_words", "trailing_turns", "confirmed_turns")
"""Columns of ``imports`` that are summed."""


def audit_record(
    rows: Iterable[Mapping[str, Any]], options: Mapping[str, Any], remedies: Iterable[str]
) -> dict[str, Any]:
    """Return the content of ``audit.json``: the rows of ``imports`` by environment, and how the source was read."""
    counts: dict[str, dict[str, Any]] = {}
    for row in rows:
        mine = counts.setdefault(
            row["env"] or "",
            {"episodes": 0, "imported": 0, "calls": 0, "left_out": {}, "evidence": {}, **dict.fromkeys(COUNTED, 0)},
        )
        mine["episodes"] += 1
        mine["imported"] += row["left_out"] is None
        mine["calls"] += row["calls"] is not None
        for name in COUNTED:
            mine[name] += row[name] or 0
        for name, values in (("left_out", [row["left_out"]]), ("evidence", row["evidence"] or ())):
            mine[name] = dict(sorted((Counter(mine[name]) + Counter(filter(None, values))).items()))
    return {"options": dict(options), "environments": dict(sorted(counts.items())), "remedies": list(remedies)}
