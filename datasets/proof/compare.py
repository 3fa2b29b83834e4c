"""Compare a stored table with the one derived anew, cell by cell, and name every difference."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

Same = Callable[[Any, Any], bool]


def differences(
    name: str, key: Sequence[str], stored: pa.Table, derived: pa.Table, same: dict[str, Same] | None = None
) -> list[str]:
    """Describe every row that is missing, unexpected, doubled, out of order or changed.

    Args:
        name: how the table is called in the descriptions.
        key: columns that name a row.
        stored: what the store holds.
        derived: what it should hold; a row is looked up by its key.
        same: equality of columns whose bytes may differ while they mean the same (encoded pictures).
    """
    stored = stored.select(derived.column_names).replace_schema_metadata(None)
    derived = derived.replace_schema_metadata(None)
    if stored.equals(derived):
        return []
    same = same or {}
    problems: list[str] = []
    expected = {_key(row, key): row for row in derived.to_pylist()}
    seen: list[tuple[Any, ...]] = []
    known: set[tuple[Any, ...]] = set()
    for row in stored.to_pylist():
        place = _key(row, key)
        if place in known:
            problems.append(f"{name} {_shown(place)}: the row stands there twice")
            continue
        known.add(place)
        if place not in expected:
            problems.append(f"{name} {_shown(place)}: a row that the run does not make")
            continue
        seen.append(place)
        problems += _cells(name, place, row, expected[place], same)
    problems += [f"{name} {_shown(place)}: the row is missing" for place in expected if place not in known]
    if not problems and seen != list(expected):
        problems.append(f"{name}: the rows are out of order")
    return problems


def _cells(
    name: str, place: tuple[Any, ...], row: dict[str, Any], wanted: dict[str, Any], same: dict[str, Same]
) -> list[str]:
    return [
        f"{name} {_shown(place)}: column {column} holds {_short(row[column])}, derived anew it is {_short(value)}"
        for column, value in wanted.items()
        if row[column] != value and not (column in same and same[column](row[column], value))
    ]


def _key(row: dict[str, Any], key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[column] for column in key)


def _shown(place: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in place)


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
