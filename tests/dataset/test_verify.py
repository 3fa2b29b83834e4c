"""Planted defects: verify finds each, with the old manifest and with one rewritten to match the damage."""

import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.datasets.store.schema import CALLS, CERTIFICATE, DATASET
from pivot.datasets.store.store import MANIFEST
from pivot.datasets.verify.compare import schema_differences
from pivot.tests.dataset.plants import FREE, other
from pivot.tests.stores import Patient, Rows, change_rows, problems, read_rows, schema_of

pytestmark = pytest.mark.usefixtures("rows_alone")
TABLES = ("episodes", "steps", "frames", "prompts", "calls", "labels")


# Any cell of any column


@pytest.mark.parametrize("table", [*TABLES, "dataset/frozenlake", "dataset/frozenlake_episodes"])
def test_any_cell_of_any_column_is_found(lake: Patient, table: str) -> None:
    """One cell of each column becomes another value or null, in turn; `test_plants` does both."""
    name = lake.file("frozenlake", table)
    schema = schema_of(name)
    for number, column in enumerate(schema.columns):
        if column.type == CERTIFICATE or (schema is CALLS and column.name in FREE):
            continue
        place = len(read_rows(lake.source, name)) // 2
        rows = read_rows(lake.source, name)
        before = rows[place][column.name]
        rows[place][column.name] = None if number % 2 else other(before, column.type)
        if rows[place][column.name] == before:
            continue
        change_rows(lake.root, name, lambda _, rows=rows: rows)
        messages = lake.found()
        assert messages, f"{name}: {column.name} was {before!r}"
        assert all(len(problem) < 500 for problem in messages)
    shutil.copy(lake.source / name, lake.root / name)


@pytest.mark.parametrize("table", ["labels", "dataset/frozenlake"])
def test_any_number_of_a_certificate_is_found(lake: Patient, table: str) -> None:
    name = lake.file("frozenlake", table)
    for field in CERTIFICATE:
        rows = read_rows(lake.source, name)
        rows[-1]["certificate"][field.name] = other(rows[-1]["certificate"][field.name], field.type)
        change_rows(lake.root, name, lambda _, rows=rows: rows)
        assert any("column certificate" in problem for problem in lake.found()), field.name
    shutil.copy(lake.source / name, lake.root / name)


# One defect of each kind, in both environments

DAMAGES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "removed": (lambda rows: rows[:-1], "is missing"),
    "doubled": (lambda rows: [rows[0], *rows], "stands there twice"),
    "reordered": (lambda rows: [rows[1], rows[0], *rows[2:]], "out of order"),
    "emptied": (lambda rows: [], "missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", [*TABLES, "dataset/sokoban", "dataset/sokoban_episodes"])
def test_rows_removed_doubled_or_out_of_order_are_found(patients: dict[str, Patient], table: str, damage: str) -> None:
    patient = patients["sokoban"]
    name = patient.file("sokoban", table)
    change, words = DAMAGES[damage]
    change_rows(patient.root, name, change)
    place = name if name.startswith("dataset") else table
    assert any(problem.startswith(place) and words in problem for problem in patient.found())


def test_another_byte_outside_of_the_rows_is_found_by_the_digest(patients: dict[str, Patient]) -> None:
    patient = patients["sokoban"]
    name = patient.file("sokoban", "episodes")
    data = (patient.root / name).read_bytes()
    assert data.count(b"parquet-cpp-arrow version 2") == 1
    (patient.root / name).write_bytes(data.replace(b"cpp-arrow version 2", b"cpp-arrow version 3"))
    assert problems(patient.root) == [f"{name}: its sha256 is not that of {MANIFEST}"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (b'"timeout", "deadlock"', b'"deadlock", "timeout"'),
        (b'"mode": "RGB"', b'"mode": null'),
        (b'{"info":', b'{"licence": "none", "info":'),
    ],
)
def test_metadata_by_which_readers_decode_is_compared(right: bytes, wrong: bytes) -> None:
    expected = DATASET.arrow_with_features()
    [(key, features)] = (expected.metadata or {}).items()
    stored = expected.with_metadata({key: features.replace(right, wrong, 1)})
    assert stored.metadata != expected.metadata
    assert schema_differences("file", expected, expected) == []
    for schema in (stored, expected.remove_metadata(), expected.with_metadata({key: features, "note": "trust me"})):
        [problem] = schema_differences("file", schema, expected)
        assert problem.startswith("file: ")
        assert "schema metadata" in problem


def _footer(data: bytes) -> int:
    """Return the offset of the footer of a Parquet file."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize(
    ("table", "column"), [("episodes", "num_steps"), ("labels", "certificate.budget_before"), ("calls", "role")]
)
def test_statistics_by_which_readers_skip_rows_are_compared(lake: Patient, table: str, column: str) -> None:
    name = lake.file("frozenlake", table)
    path, head, inner = lake.root / name, column.split(".", maxsplit=1)[0], column.partition(".")[2]
    whole = pq.read_table(path)
    rows = whole[head].to_pylist()
    other: dict[str, Any] = {"num_steps": 1, "role": "teacher"}
    lied = [None if row is None else row | {inner: 1} for row in rows] if inner else [other[head]] * len(rows)
    place = whole.schema.get_field_index(head)
    false = whole.set_column(place, whole.field(place), pa.array(lied, whole.field(place).type))
    files = []
    for each in (whole, false):
        pq.write_table(each, path, compression="none", use_dictionary=False)
        files.append(path.read_bytes())
    true, forged = files
    path.write_bytes(true[: _footer(true)] + forged[_footer(forged) :])
    if _footer(true) == _footer(forged):  # column offsets are those of the original file
        assert pq.read_table(path).equals(whole)
    assert any(each.startswith(f"{name}: footer.statistics") for each in lake.found())


def test_a_row_group_without_rows_is_found(lake: Patient) -> None:
    name = lake.file("frozenlake", "dataset/frozenlake")
    whole = pq.read_table(lake.root / name)
    with pq.ParquetWriter(lake.root / name, whole.schema) as writer:
        writer.write_table(whole.slice(0, 0))
        writer.write_table(whole)
    assert any(each.startswith(f"{name}: footer.groups") for each in lake.found())
