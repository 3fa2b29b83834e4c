"""Planted defects: verify finds each, with the old manifest and with one rewritten to match the damage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.datasets.store.schema import CALLS, CERTIFICATE, DATASET
from pivot.datasets.store.store import MANIFEST
from pivot.datasets.verify.compare import schema_differences
from pivot.tests.dataset.containers import one_pixel
from pivot.tests.dataset.plants import FREE, other
from pivot.tests.stores import Patient, Rows, change_rows, problems, read_rows, schema_of

TABLES = ("episodes", "steps", "frames", "prompts", "calls", "labels")
BOTH = ("sokoban", "frozenlake")


def test_a_clean_store_has_no_problems(small_store: Path, patient: Patient, lake: Patient) -> None:
    assert problems(small_store) == []
    assert patient.found() == []
    assert lake.found() == []


# Any cell of any column


@pytest.fixture
def rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the rows only: each must be found without card and views, and in half the time."""
    for name in ("card_problems", "view_problems"):
        monkeypatch.setattr(f"pivot.datasets.verify.verify.{name}", lambda *_: [])


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("table", [*TABLES, "dataset/frozenlake", "dataset/frozenlake_episodes"])
def test_any_cell_of_any_column_is_found(lake: Patient, table: str) -> None:
    """One cell of each column becomes another value or null, in turn; the plants do both."""
    name = lake.file("frozenlake", table)
    schema = schema_of(name)
    for number, column in enumerate(schema.columns):
        if column.type == CERTIFICATE or (schema is CALLS and column.name in FREE):
            continue
        place = len(read_rows(lake.source, name)) // 2
        for change in (lambda value, kind=column.type: other(value, kind), lambda value: None)[number % 2 :][:1]:
            rows = read_rows(lake.source, name)
            before = rows[place][column.name]
            rows[place][column.name] = change(before)
            if rows[place][column.name] == before:
                continue
            change_rows(lake.root, name, lambda _, rows=rows: rows)
            messages = lake.found()
            assert messages, f"{name}: {column.name} was {before!r}"
            assert all(len(problem) < 500 for problem in messages)
    shutil.copy(lake.source / name, lake.root / name)


@pytest.mark.usefixtures("rows_alone")
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


def _first(column: str, change: Callable[[Any], Any]) -> Callable[[Rows], None]:
    def changed(rows: Rows) -> None:
        rows[0][column] = change(rows[0][column])

    return changed


def _info(text: str) -> str:
    info = json.loads(text)
    return json.dumps(info | {"moved": not info["moved"]}, sort_keys=True, separators=(",", ":"))


KINDS: dict[str, tuple[str, Callable[[Rows], Any]]] = {
    "pivot step": ("labels", _first("pivot_step", lambda step: step + 1 if step < 4 else step - 1)),
    "failure mode": ("labels", _first("failure_mode", lambda mode: "deadlock" if mode == "timeout" else "timeout")),
    "witness": ("labels", _first("witness", lambda plan: [*plan[:-1], "up" if plan[-1] != "up" else "down"])),
    "feasible actions": ("labels", _first("feasible_actions", lambda actions: actions[1:])),
    "certificate": ("labels", _first("certificate", lambda facts: facts | {"before": facts["before"] + 1})),
    "accepted": ("labels", _first("accepted", lambda accepted: not accepted)),
    "target": ("labels", _first("target", lambda target: target.replace('"pivot_step"', '"pivot_Step"'))),
    "guidance": ("labels", _first("failure_reason", lambda text: text.replace(".", "!", 1))),
    "action of an episode": ("episodes", _first("actions", lambda names: [*names[:-1], "invalid"])),
    "reward of an episode": ("episodes", _first("rewards", lambda rewards: [rewards[0] + 1e-9, *rewards[1:]])),
    "return": ("episodes", _first("episode_return", lambda value: value + 1e-9)),
    "seed": ("episodes", _first("seed", lambda seed: seed + 1)),
    "action of a step": ("steps", _first("action", lambda name: "left" if name != "left" else "right")),
    "reward of a step": ("steps", _first("reward", lambda reward: reward - 1e-9)),
    "reply": ("steps", _first("response", lambda text: text.replace("<think>", "<think> "))),
    "info": ("steps", _first("info", _info)),
    "frame of a step": ("steps", lambda rows: rows[0].update(frame_id=rows[-1]["frame_id"])),
    "pixel of a frame": ("frames", _first("image", one_pixel)),
    "byte size of a frame": ("frames", _first("byte_size", lambda size: size - 1)),
    "prompt": ("prompts", _first("messages", lambda text: text.replace("e", "é", 1))),
    "record": ("dataset/{env}", _first("pivot_step", lambda step: step + 1)),
    "record's prompt": ("dataset/{env}", _first("prompt", lambda messages: messages[:-1])),
    "pixel of a collage": (
        "dataset/{env}",
        _first("images", lambda images: [images[0] | {"bytes": one_pixel(images[0]["bytes"])}]),
    ),
    "pixel of a panel": ("dataset/{env}", _first("panel", lambda image: image | {"bytes": one_pixel(image["bytes"])})),
    "path of a panel": ("dataset/{env}", _first("panel", lambda image: image | {"path": "elsewhere.png"})),
    "pixel of an episode": (
        "dataset/{env}_episodes",
        _first("images", lambda images: [*images[:-1], images[-1] | {"bytes": one_pixel(images[-1]["bytes"])}]),
    ),
}


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("env", BOTH)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_defect_is_found(patients: dict[str, Patient], kind: str, env: str) -> None:
    patient = patients[env]
    table, damage = KINDS[kind]
    name = patient.file(env, table.format(env=env))
    change_rows(patient.root, name, damage)
    messages = patient.found()
    assert not any(MANIFEST in problem for problem in messages)
    place = name if name.startswith("dataset") else name.split("/")[0]
    assert any(problem.startswith(place) for problem in messages), messages


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("damage", ["removed", "doubled", "reordered", "emptied"])
@pytest.mark.parametrize("table", [*TABLES, "dataset/sokoban", "dataset/sokoban_episodes"])
def test_rows_removed_doubled_or_out_of_order_are_found(patients: dict[str, Patient], table: str, damage: str) -> None:
    patient = patients["sokoban"]
    name = patient.file("sokoban", table)
    words = {
        "removed": "is missing",
        "doubled": "stands there twice",
        "reordered": "out of order",
        "emptied": "missing",
    }
    changes: dict[str, Callable[[Rows], Rows]] = {
        "removed": lambda rows: rows[:-1],
        "doubled": lambda rows: [rows[0], *rows],
        "reordered": lambda rows: [rows[1], rows[0], *rows[2:]],
        "emptied": lambda rows: [],
    }
    change_rows(patient.root, name, changes[damage])
    place = name if name.startswith("dataset") else table
    assert any(problem.startswith(place) and words[damage] in problem for problem in patient.found())


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("table", [*TABLES, "dataset/sokoban", "dataset/sokoban_episodes"])
def test_a_changed_file_is_found_by_its_digest(patients: dict[str, Patient], table: str) -> None:
    """The manifest still has the old digest; other tests rewrite it, too, and look for the damage in the rows."""
    patient = patients["sokoban"]
    name = patient.file("sokoban", table)
    change_rows(patient.root, name, lambda rows: rows[:-1])
    assert any(problem.startswith(f"{name}: its ") and MANIFEST in problem for problem in problems(patient.root))


@pytest.mark.usefixtures("rows_alone")
def test_another_byte_outside_of_the_rows_is_found_by_the_digest(patients: dict[str, Patient]) -> None:
    patient = patients["sokoban"]
    name = patient.file("sokoban", "episodes")
    data = (patient.root / name).read_bytes()
    writer, other_writer = b"parquet-cpp-arrow version 2", b"parquet-cpp-arrow version 3"
    assert data.count(writer) == 1
    (patient.root / name).write_bytes(data.replace(writer, other_writer))
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
    """Where the footer of a Parquet file begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.usefixtures("rows_alone")
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
    if _footer(true) == _footer(forged):  # places of columns are those of the true file
        assert pq.read_table(path).equals(whole)
    assert any(each.startswith(f"{name}: footer.statistics") for each in lake.found())


@pytest.mark.usefixtures("rows_alone")
def test_a_row_group_without_rows_is_found(lake: Patient) -> None:
    name = lake.file("frozenlake", "dataset/frozenlake")
    whole = pq.read_table(lake.root / name)
    with pq.ParquetWriter(lake.root / name, whole.schema) as writer:
        writer.write_table(whole.slice(0, 0))
        writer.write_table(whole)
    assert any(each.startswith(f"{name}: footer.groups") for each in lake.found())


def test_the_prompts_of_the_analyzer_are_checked_too(patients: dict[str, Patient]) -> None:
    patient = patients["sokoban"]
    name = "prompts/sokoban/00000-labels-v1.parquet"
    change_rows(patient.root, name, lambda rows: rows[1:])
    assert any("prompts" in problem and "missing" in problem for problem in patient.found())
