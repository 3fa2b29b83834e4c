"""Records declared once: columns, rows, and reading them back; random draws that are uniform and stay the same."""

import random
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.core.identity import below, digest, sample_below
from pivot.core.records import Stored, from_row, stored_fields, to_row
from pivot.datasets.store.schema import Column, TableSchema, columns_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part:
    """A record within a record."""

    name: Annotated[str, Stored("Name.")]
    weights: Annotated[tuple[float, ...], Stored("Weights.")]
    note: str = "not stored"


@dataclass
class Thing:
    """A record with every kind of column."""

    text: Annotated[str, Stored("Text.")]
    word: Annotated[Literal["a", "b"], Stored("One of two words.")]
    small: Annotated[int | None, Stored("32 bits.")]
    large: Annotated[int, Stored("64 bits.", wide=True)]
    number: Annotated[float, Stored("Number.")]
    flag: Annotated[bool | None, Stored("Flag.")]
    raw: Annotated[bytes, Stored("Bytes.")]
    colour: Annotated[Colour | None, Stored("Colour.")]
    names: Annotated[list[str], Stored("List.")]
    colours: Annotated[tuple[Colour, ...], Stored("Enums in a tuple.")]
    info: Annotated[dict[str, Any], Stored("Any JSON.", json=True)]
    messages: Annotated[tuple[dict[str, Any], ...], Stored("A tuple as JSON.", json=True)]
    part: Annotated[Part | None, Stored("A record.")]
    parts: Annotated[tuple[Part, ...], Stored("Several.")]
    size: Annotated[int, Stored("Length of `text`.")] = field(init=False)
    scratch: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = len(self.text)


PART = pa.struct([("name", pa.string()), ("weights", pa.list_(pa.float64()))])
THINGS = TableSchema("things", "Things.", columns_of(Thing))

parts = st.builds(Part, st.text(max_size=3), st.lists(st.floats(allow_nan=False), max_size=2).map(tuple))
json_data = st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=2)
things = st.builds(
    Thing,
    text=st.text(max_size=5),
    word=st.sampled_from(("a", "b")),
    small=st.none() | st.integers(-(2**31), 2**31 - 1),
    large=st.integers(-(2**63), 2**63 - 1),
    number=st.floats(allow_nan=False),
    flag=st.none() | st.booleans(),
    raw=st.binary(max_size=3),
    colour=st.none() | st.sampled_from(Colour),
    names=st.lists(st.text(max_size=3), max_size=3),
    colours=st.lists(st.sampled_from(Colour), max_size=3).map(tuple),
    info=json_data,
    messages=st.lists(json_data, max_size=2).map(tuple),
    part=st.none() | parts,
    parts=st.lists(parts, max_size=2).map(tuple),
)


def test_the_columns_are_those_of_the_annotations() -> None:
    assert THINGS.columns == (
        Column("text", pa.string(), "Text.", required=True),
        Column("word", pa.string(), "One of two words.", required=True),
        Column("small", pa.int32(), "32 bits."),
        Column("large", pa.int64(), "64 bits.", required=True),
        Column("number", pa.float64(), "Number.", required=True),
        Column("flag", pa.bool_(), "Flag."),
        Column("raw", pa.binary(), "Bytes.", required=True),
        Column("colour", pa.string(), "Colour."),
        Column("names", pa.list_(pa.string()), "List.", required=True),
        Column("colours", pa.list_(pa.string()), "Enums in a tuple.", required=True),
        Column("info", pa.string(), "Any JSON.", required=True),
        Column("messages", pa.string(), "A tuple as JSON.", required=True),
        Column("part", PART, "A record."),
        Column("parts", pa.list_(PART), "Several.", required=True),
        Column("size", pa.int32(), "Length of `text`.", required=True),
    )


@given(st.lists(things, max_size=3))
def test_rows_and_records_make_each_other(records: list[Thing]) -> None:
    rows = THINGS.table(list(map(to_row, records))).to_pylist()
    again = [from_row(Thing, row) for row in rows]
    assert again == records
    assert [[type(value) for value in vars(one).values()] for one in again] == [
        [type(value) for value in vars(one).values()] for one in records
    ]
    assert list(map(to_row, again)) == list(map(to_row, records))


@given(things)
def test_what_is_not_stored_is_given(thing: Thing) -> None:
    row = to_row(thing)
    assert list(row) == list(THINGS.names) and from_row(Thing, row, scratch=[7]).scratch == [7]
    assert [each.name for each in stored_fields(Thing) if not each.in_constructor] == ["size"]


def test_a_row_without_a_column_is_no_record() -> None:
    with pytest.raises(KeyError, match="weights"):
        from_row(Part, {"name": "a"})


def test_a_type_that_no_column_can_have_is_refused_at_once() -> None:
    @dataclass
    class Odd:
        when: Annotated[complex, Stored("A complex number.")]

    with pytest.raises(KeyError, match="complex"):
        columns_of(Odd)


@dataclass
class Single:
    """A record of one column."""

    name: Annotated[str, Stored("Name.")]


def test_a_record_of_one_column_is_a_row() -> None:
    assert to_row(Single("left")) == {"name": "left"}


def test_draws_keep_their_values() -> None:
    """Compare 1,320 draws with ``randrange`` and ``sample`` of Python 3.11; a difference changes levels."""
    drawn: list[list[int]] = []
    for seed in range(60):
        rng = random.Random(seed)
        numbers = [below(rng, count) for count in (1, 2, 3, 10, 1000, 2**40)]
        drawn.append([*numbers, *sample_below(rng, 20, 7), *sample_below(rng, 500, 9)])
    assert digest(drawn) == "244eaf92c2fc845149c15e933fc15859"
