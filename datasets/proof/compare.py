"""Compare a stored table with the one derived anew, cell by cell, and name every difference so that it shows."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

Same = Callable[[Any, Any], bool | str]
"""Whether two cells mean the same though they differ; or a text that says what is wrong with the stored one."""

SHOWN = 80
"""Characters of a value that are shown."""
_BEFORE = 20


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


def schema_differences(name: str, stored: pa.Schema, expected: pa.Schema) -> list[str]:
    """Describe columns that are more or elsewhere, and metadata by which readers decode the others.

    Columns that are missing or of another type are found when a table is read.
    """
    problems = []
    if more := [column for column in stored.names if column not in expected.names]:
        problems.append(f"{name}: columns that the run does not make: {', '.join(more)}")
    elif stored.names != expected.names:
        problems.append(f"{name}: the columns are out of order")
    found, wanted = (_metadata(schema) for schema in (stored, expected))
    for key in sorted(found.keys() | wanted.keys()):
        if key not in wanted:
            problems.append(f"{name}: schema metadata {key!r}, which the run does not make")
        elif key not in found:
            problems.append(f"{name}: the schema metadata {key!r} is missing, so readers decode no picture or class")
        elif found[key] != wanted[key]:
            problems.append(f"{name}: schema metadata {contrast(key, found[key], wanted[key])}")
    problems += [
        f"{name}: column {field.name} has metadata, which the run does not make" for field in stored if field.metadata
    ]
    return problems


def _metadata(schema: pa.Schema) -> dict[str, Any]:
    texts = {key.decode("utf-8", "replace"): value for key, value in (schema.metadata or {}).items()}
    return {key: _parsed(value) for key, value in texts.items()}


def _parsed(value: bytes) -> Any:
    """JSON as data where it can be read, so that a difference in it can be named."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def contrast(name: str, stored: Any, derived: Any) -> str:
    """Say where two values differ, showing the parts that do: of a struct its field, of a text what is around."""
    if isinstance(stored, dict) and isinstance(derived, dict) and stored.keys() == derived.keys():
        fields = [field for field in derived if stored[field] != derived[field]]
        if fields:
            more = f" (and {', '.join(map(str, fields[1:]))})" if len(fields) > 1 else ""
            return contrast(f"{name}.{fields[0]}", stored[fields[0]], derived[fields[0]]) + more
    elif isinstance(stored, list) and isinstance(derived, list):
        place = _first_difference(stored, derived)
        if len(stored) == len(derived):
            return contrast(f"{name}[{place}]", stored[place], derived[place])
        one, other = _short(stored[place:]), _short(derived[place:])
        return (
            f"{name} holds {len(stored)} items, derived anew {len(derived)}; they differ from number {place} on: "
            f"{one} and {other}"
        )
    texts = repr(stored), repr(derived)
    start = _first_difference(*texts) - _BEFORE if max(map(len, texts)) > SHOWN else 0
    return f"{name} holds {_short(texts[0], start)}, derived anew it is {_short(texts[1], start)}"


def _first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the first index at which two sequences differ, by bisection: texts may have millions of characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _cells(
    name: str, place: tuple[Any, ...], row: dict[str, Any], wanted: dict[str, Any], same: dict[str, Same]
) -> list[str]:
    problems = []
    for column, value in wanted.items():
        if row[column] != value:
            verdict = same[column](row[column], value) if column in same else False
            if verdict is not True:
                what = contrast(column, row[column], value) if verdict is False else f"{column}: {verdict}"
                problems.append(f"{name} {_shown(place)}: column {what}")
    return problems


def _key(row: dict[str, Any], key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[column] for column in key)


def _shown(place: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in place)


def _short(value: Any, start: int = 0) -> str:
    text = value if isinstance(value, str) else repr(value)
    start = max(0, start)
    head, tail = "…" if start else "", "…" if len(text) > start + SHOWN else ""
    return f"{head}{text[start : start + SHOWN]}{tail}"
