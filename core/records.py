"""Records that are stored, each declared once: a dataclass whose fields say what their columns hold.

``t: Annotated[int, Stored("Step index, 0-based.")]`` is a column, an integer; a field without a :class:`Stored` is in
no table. The Parquet schema, the rows, the way back and the reference in the docs come from that one place. Nothing
here knows Parquet (see ``datasets/store/schema.py``), so a record may be declared in any room.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from .identity import canonical_json

Record = TypeVar("Record")
Code = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """Annotation of a field that describes its column, in addition to the type."""

    doc: str
    """Meaning, as a sentence for the reference."""
    wide: bool = False
    """True for an integer of 64 bits; one of 32 otherwise."""
    json: bool = False
    """True for data of any shape, stored as canonical JSON."""


@dataclass(frozen=True, slots=True)
class StoredField:
    """One column of a record."""

    name: str
    type: Any
    """The annotation without ``None`` and without :class:`Stored`."""
    stored: Stored
    in_constructor: bool
    """True for an argument of the constructor; other fields are computed."""
    write: Code | None
    """Converts a value to plain data; None if it is plain already."""
    read: Code | None
    """Converts plain data back; None if nothing is to convert."""
    required: bool
    """True for a value that is never None."""


@cache
def stored_fields(record: type) -> tuple[StoredField, ...]:
    """Return the columns of a record, in the order of its fields."""
    hints = get_type_hints(record, include_extras=True)
    columns: list[StoredField] = []
    for each in fields(record):
        hint = hints[each.name]
        stored = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Stored)), None)
        if stored is not None:
            declared = get_args(hint)[0]
            kind = declared
            if get_origin(declared) in (Union, types.UnionType):
                (kind,) = (part for part in get_args(declared) if part is not types.NoneType)
            codes = _writer(kind, stored), _reader(kind, stored)
            columns.append(StoredField(each.name, kind, stored, each.init, *codes, required=kind is declared))
    return tuple(columns)


def to_row(record: Any) -> dict[str, Any]:
    """Return the columns of a record as plain data."""
    names, get, writers = _writers(cast(type[Any], type(record)))
    values: dict[str, Any] = dict(zip(names, get(record), strict=False))
    for name, write in writers:
        if (value := values[name]) is not None:
            values[name] = write(value)
    return values


@cache
def _writers(record: type) -> tuple[tuple[str, ...], Code, list[tuple[str, Code]]]:
    """Return the names of all columns, a getter of their values, and the converters of some columns."""
    columns = stored_fields(record)
    names = tuple(each.name for each in columns)
    get = attrgetter(*names, names[0])  # for a single name, attrgetter returns no tuple
    return names, get, [(each.name, each.write) for each in columns if each.write is not None]


def from_row(record: type[Record], row: Mapping[str, Any], **others: Any) -> Record:
    """Build a record from its row; ``others`` are its fields that are not stored."""
    for each in stored_fields(record):
        if each.in_constructor:
            value = row[each.name]
            others[each.name] = value if value is None or each.read is None else each.read(value)
    return record(**others)


def _writer(kind: Any, stored: Stored) -> Code | None:
    if stored.json:
        return canonical_json
    if is_dataclass(kind):
        return to_row
    if get_origin(kind) in (list, tuple) and is_dataclass(get_args(kind)[0]):
        return lambda records: list(map(to_row, records))
    return None


def _reader(kind: Any, stored: Stored) -> Code | None:
    origin = get_origin(kind)
    if stored.json:
        return (lambda text: tuple(json.loads(text))) if origin is tuple else json.loads
    if origin in (list, tuple):
        item = _reader(get_args(kind)[0], stored)
        make = cast(Code, origin)
        return make if item is None else lambda values: make(map(item, values))
    if isinstance(kind, type) and is_dataclass(kind):
        return lambda values: from_row(kind, values)
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else None
