"""Compare a stored table with the recomputed one, cell by cell, and describe every difference."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ...core.errors import ImageError
from ...core.images import decode, frame_id
from ...core.storage import Storage
from ..store.parquet import write_parquet
from ..store.schema import CALLS, FRAMES, PROMPTS, STEPS, TableSchema

KEYS = {
    STEPS.name: ["episode_id", "t"],
    FRAMES.name: ["frame_id"],
    PROMPTS.name: ["prompt_hash"],
    CALLS.name: ["request_id"],
}
"""Key columns of tables whose rows are not identified by the episode alone."""

Same = Callable[[Any, Any], bool | str]
"""Returns whether two different cells have the same meaning, or a description of the stored cell's problem."""

SHOWN = 80
"""Characters of a value that are shown."""
_BEFORE = 20


def differences(
    name: str, schema: TableSchema, stored: pa.Table, derived: pa.Table, same: Mapping[str, Same] | None = None
) -> list[str]:
    """Describe every row that is missing, unexpected, doubled, out of order or changed.

    Args:
        name: name of the table in the descriptions.
        schema: the table, which says by which columns a row is looked up.
        stored: what the store holds.
        derived: what it should hold.
        same: comparison of columns whose bytes may differ with the same meaning (encoded pictures).
    """
    stored = stored.select(derived.column_names).replace_schema_metadata(None)
    derived = derived.replace_schema_metadata(None)
    if stored.equals(derived):
        return []
    same, key = same or {}, KEYS.get(schema.name, ["episode_id"])
    problems: list[str] = []
    expected = {_key(row, key): row for row in derived.to_pylist()}
    seen: list[tuple[Any, ...]] = []
    present: set[tuple[Any, ...]] = set()
    for row in stored.to_pylist():
        place = _key(row, key)
        if place in present:
            problems.append(f"{name} {_shown(place)}: the row stands there twice")
            continue
        present.add(place)
        if place not in expected:
            problems.append(f"{name} {_shown(place)}: a row that the run does not make")
            continue
        seen.append(place)
        problems += _cells(name, place, row, expected[place], same)
    problems += [f"{name} {_shown(place)}: the row is missing" for place in expected if place not in present]
    if not problems and seen != list(expected):
        problems.append(f"{name}: the rows are out of order")
    return problems


def schema_differences(name: str, stored: pa.Schema, expected: pa.Schema) -> list[str]:
    """Describe extra or reordered columns, and differences in the metadata by which readers decode columns.

    Missing columns, and columns of another type, are reported when a table is read.
    """
    problems = []
    if more := [column for column in stored.names if column not in expected.names]:
        problems.append(f"{name}: columns that the run does not make: {', '.join(more)}")
    elif stored.names != expected.names:
        problems.append(f"{name}: the columns are out of order")
    actual, right = (_metadata(schema) for schema in (stored, expected))
    for key in sorted(actual.keys() | right.keys()):
        if key not in right:
            problems.append(f"{name}: schema metadata {key!r}, which the run does not make")
        elif key not in actual:
            problems.append(f"{name}: the schema metadata {key!r} is missing, so readers decode no picture or class")
        elif actual[key] != right[key]:
            problems.append(f"{name}: schema metadata {contrast(key, actual[key], right[key])}")
    problems += [
        f"{name}: column {field.name} has metadata, which the run does not make" for field in stored if field.metadata
    ]
    return problems


def _metadata(schema: pa.Schema) -> dict[str, Any]:
    texts = {key.decode("utf-8", "replace"): value for key, value in (schema.metadata or {}).items()}
    return {key: _parsed(value) for key, value in texts.items()}


def _parsed(value: bytes) -> Any:
    """Return JSON as data if it can be parsed, so that differences in it can be described."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def contrast(name: str, stored: Any, derived: Any) -> str:
    """Describe where two values differ: the field of a struct, the item of a list, the surroundings in a text."""
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
            f"{name} holds {len(stored)} items, recomputed {len(derived)}; they differ from number {place} on: "
            f"{one} and {other}"
        )
    texts = repr(stored), repr(derived)
    start = _first_difference(*texts) - _BEFORE if max(map(len, texts)) > SHOWN else 0
    return f"{name} holds {_short(texts[0], start)}, recomputed it is {_short(texts[1], start)}"


def _first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the first index at which two sequences differ, or the length of the shorter one."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _cells(
    name: str, place: tuple[Any, ...], row: dict[str, Any], right: dict[str, Any], same: Mapping[str, Same]
) -> list[str]:
    problems = []
    for column, value in right.items():
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


# Files


def footer_problems(storage: Storage, name: str, schema: TableSchema, table: pa.Table) -> list[str]:
    """Compare the footer of a file with that of a file written from ``table``: readers count, skip and sort rows by it.

    Another version of PyArrow may write other bytes; then what the footers say is compared.
    """
    rows = schema.table(table.select(schema.names).to_pylist()).replace_schema_metadata(table.schema.metadata)
    written, stored = io.BytesIO(), storage.read_bytes(name)
    write_parquet(schema, rows, written)
    if written.getvalue() == stored:
        return []
    one, other = _footer(stored), _footer(written.getvalue())
    return [] if repr(one) == repr(other) else [f"{name}: {contrast('footer', one, other)}"]


_OF_WRITERS = {
    *("file_offset", "compression", "encodings", "total_compressed_size", "total_uncompressed_size", "geo_statistics"),
    *("has_dictionary_page", "dictionary_page_offset", "data_page_offset", "index_page_offset", "has_index_page"),
}
"""Fields of a column in a footer that also depend on the writer."""


def _footer(data: bytes) -> dict[str, Any]:
    with pq.ParquetFile(io.BytesIO(data)) as file:
        footer = file.metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        columns = [[group.column(index) for index in range(group.num_columns)] for group in groups]
        leaves = [file.schema.column(index) for index in range(len(file.schema))]
        return {
            "writer": footer.created_by.partition(" version ")[0],
            "rows": footer.num_rows,
            "columns": [(leaf.path, leaf.physical_type, str(leaf.logical_type)) for leaf in leaves],
            "groups": [(group.num_rows, group.sorting_columns) for group in groups],
            "statistics": [
                [{key: value for key, value in each.to_dict().items() if key not in _OF_WRITERS} for each in group]
                for group in columns
            ],
            "indexes": [[(each.has_column_index, each.has_offset_index) for each in group] for group in columns],
        }


def picture_problem(stored: bytes, made: bytes, *, lossless: bool = True) -> str | None:
    """Return how a picture file differs from the recomputed one in anything that a reader sees; None if it does not.

    With ``lossless=False`` the pixels are not compared.
    """
    try:
        if lossless and frame_id(decode(stored)) != frame_id(decode(made)):
            return "its pixels differ from the recomputed ones"
        one, other = _beside_pixels(stored), _beside_pixels(made)
    except (ImageError, OSError, ValueError, SyntaxError) as error:
        return f"it cannot be decoded ({error})"
    return None if one == other else contrast("its file", one, other)


def _beside_pixels(data: bytes) -> dict[str, Any]:
    """Return what programs show or apply of a picture file besides its pixels."""
    with Image.open(io.BytesIO(data)) as picture:
        picture.verify()  # checksums, which OpenCV reads
    with Image.open(io.BytesIO(data)) as picture:
        picture.load()
        return {
            "format": picture.format,
            "mode": picture.mode,
            "frames": getattr(picture, "n_frames", 1),
            "info": picture.info,
            "tags": dict(picture.getexif()),
        }
