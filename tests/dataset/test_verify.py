"""Planted defects and whole stores: verify finds each defect, also with a manifest that was rewritten to match it."""

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.core import plugins
from pivot.core.errors import PivotError, PolicyError
from pivot.core.images import encode_png
from pivot.datasets.store.run import RunEnv
from pivot.datasets.store.schema import CALLS, CERTIFICATE, DATASET
from pivot.datasets.store.store import MANIFEST, RUN, Store
from pivot.datasets.verify.compare import schema_differences
from pivot.datasets.verify.views import view_problems
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.environments.turns import Reply, Turn
from pivot.labeling.writers.template import TemplateWriter
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Proof, Unsolved, Verdict
from pivot.tests.dataset.containers import one_pixel
from pivot.tests.dataset.plants import FREE, change_run, other
from pivot.tests.stores import Patient, Rows, build_tiny, change_rows, problems, read_rows, rewrite_manifest, schema_of

pytestmark = pytest.mark.usefixtures("no_views")
BOTH = ("sokoban", "frozenlake")


def test_a_clean_store_has_no_problems(small_store: Path, patient: Patient, lake: Patient) -> None:
    """Catch a verify that calls a store wrong that a build has just written."""
    assert [problems(small_store), patient.found(), lake.found()] == [[], [], []]
    assert view_problems(Store.open(small_store)) == []


@pytest.mark.usefixtures("rows_alone")
def test_a_torn_file_costs_its_environment_only(patient: Patient) -> None:
    path = patient.root / patient.file("frozenlake", "labels")
    path.write_bytes(path.read_bytes()[:-40])
    messages = patient.found()
    assert any(patient.file("frozenlake", "labels") in each for each in messages), messages
    assert not [each for each in messages if "sokoban" in each], messages


# Whole episodes, levels, files


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("env", BOTH)
def test_an_added_episode_is_found(patients: dict[str, Patient], env: str) -> None:
    """A ninth rollout with rows in every table, each of them right in itself."""
    patient = patients[env]
    labelled = read_rows(patient.source, patient.file(env, "labels"))[0]["episode_id"]

    def add(rows: Rows) -> Rows:
        mine = [row | {"episode_id": "episode-v1-added"} for row in rows if row["episode_id"] == labelled]
        return rows + [row | ({"sample_idx": 2} if "sample_idx" in row else {}) for row in mine]

    for table in ("episodes", "steps", "calls", "labels"):
        change_rows(patient.root, patient.file(env, table), add)
    assert any("episodes episode-v1-added: a row that the run does not make" in each for each in patient.found())


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("env", BOTH)
@pytest.mark.parametrize("suffix", ["", "_episodes"])
def test_swapped_sides_are_found(patients: dict[str, Patient], env: str, suffix: str) -> None:
    patient = patients[env]
    places = [f"dataset/{env}{suffix}/{side}-00000.parquet" for side in ("train", "validation")]
    contents = [(patient.root / place).read_bytes() for place in places]
    for place, content in zip(places, reversed(contents), strict=True):
        (patient.root / place).write_bytes(content)
    messages = patient.found()
    for place in places:
        assert any(problem.startswith(place) and "the row is missing" in problem for problem in messages)
        assert any(problem.startswith(place) and "does not make" in problem for problem in messages)


EXTRA = {
    "episodes/sokoban/00001.parquet": "episodes/sokoban/00000.parquet",
    "dataset/sokoban/train-00007.parquet": "dataset/sokoban/train-00000.parquet",
    "labels/v1/sokoban/00001.parquet": "labels/v1/sokoban/00000.parquet",
    "labels/v7/sokoban/00000.parquet": "labels/v1/sokoban/00000.parquet",
    "frames/chess/00000.parquet": "frames/sokoban/00000.parquet",
    "dataset/sokoban/notes.txt": RUN,
}


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("name", EXTRA)
def test_a_file_too_many_is_found(patients: dict[str, Patient], name: str) -> None:
    patient = patients["sokoban"]
    (patient.root / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(patient.source / EXTRA[name], patient.root / name)
    assert f"{name}: the file is not in {MANIFEST}" in problems(patient.root)
    assert f"{name}: a file that the run does not make" in patient.found()


def test_every_missing_file_is_found(lake: Patient) -> None:
    """Catch a file of the store that no check needs, so that it may be left out."""
    names = [name for name in Store.open(lake.source).manifest() if name != RUN]
    assert len(names) == 7 + 2 + 2
    for name in names:
        (lake.root / name).unlink()
        # A missing optional file shows by its missing rows.
        assert any(problem.startswith((name, f"{name.split('/')[0]} ")) for problem in lake.found()), name
        shutil.copy(lake.source / name, lake.root / name)
    (lake.root / names[0]).unlink()
    shutil.copy(lake.source / MANIFEST, lake.root / MANIFEST)
    assert f"{names[0]}: the file is missing" in problems(lake.root)


def test_card_and_picture_are_checked(patients: dict[str, Patient]) -> None:
    """Catch a card or a picture on it that says something else than the tables."""
    patient = patients["sokoban"]
    card, picture = (patient.root / "dataset" / name for name in ("README.md", "example.png"))
    card.write_text(card.read_text().replace("| sokoban | 2 |", "| sokoban | 3 |"))
    assert any(problem.startswith("dataset/README.md") for problem in patient.found())
    patient.heal()
    picture.write_bytes(one_pixel(picture.read_bytes()))
    assert any(problem.startswith("dataset/example.png") for problem in patient.found())
    picture.write_bytes(b"no picture")
    assert any("example.png" in problem or "README.md" in problem for problem in patient.found())


def test_a_picture_of_nothing_is_found(tmp_path: Path) -> None:
    """If no label was accepted, the card has no picture of a failure."""
    root = build_tiny(tmp_path / "store", "sokoban", solvers={"sokoban": {"max_states": 3}})
    picture = root / "dataset" / "example.png"
    assert not picture.exists()
    assert problems(root) == []
    picture.write_bytes(encode_png(np.zeros((8, 8, 3), np.uint8)))
    rewrite_manifest(root)
    assert problems(root) == ["dataset/example.png: it is not the picture that the tables give"]


# run.json

FIELDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "seed": lambda run: run["config"].update(seed=1),
    "rollouts": lambda run: run["config"].update(rollouts=3),
    "split": lambda run: run["config"].update(split="episode"),
    "validation fraction": lambda run: run["config"].update(validation_fraction=0.11),
    "infeasible": lambda run: run["config"].update(include_infeasible=True),
    "shard size": lambda run: run["config"].update(tasks_per_shard=15),
    "label version": lambda run: run["config"].update(label_version=2),
    "policy": lambda run: run["config"]["policy"]["options"].update(habits={"sokoban": {"skill": 2.0}}),
    "fewer tasks": lambda run: run["config"]["environments"]["sokoban"].update(tasks=1),
    "more tasks": lambda run: run["config"]["environments"]["sokoban"].update(tasks=3),
    "horizon": lambda run: run["config"]["environments"]["sokoban"]["settings"].update(horizon=10),
    "pictures": lambda run: run["config"]["environments"]["sokoban"]["settings"].update(cell=16),
    "tries": lambda run: run["config"]["environments"]["sokoban"]["settings"].update(max_tries=199),
    "run id": lambda run: run.update(run_id="0"),
    "a version": lambda run: run["versions"].update(numpy="0"),
    "a format": lambda run: run.update(format=2),
    "a field more": lambda run: run.update(note="hello"),
    "a version more": lambda run: run["versions"].update(trust="1.0"),
    "a version less": lambda run: run["versions"].pop("numpy"),
    "a version that is not a text": lambda run: run["versions"].update(numpy=["2.0"]),
    "no run id": lambda run: run.pop("run_id"),
    "a default left out": lambda run: run["config"].pop("split"),
    "no such policy": lambda run: run["config"]["policy"].update(name="nobody"),
    "no such option": lambda run: run["config"]["policy"]["options"].update(nothing=1),
    "impossible levels": lambda run: run["config"]["environments"]["sokoban"]["settings"].update(max_tries=0),
}


UNUSABLE = {
    "label version": "the label version is 2, but the labels in",
    "a format": "found format 2, expected 1",
    "no such policy": "unknown policy 'nobody'",
    "no such option": "policy scripted: unknown setting nothing",
    "impossible levels": "setting sokoban.max_tries",
}
"""Fields without which nothing can be derived: the error names them."""
ON_THE_CARD = ("validation fraction", "infeasible", "shard size", "a version")
"""Fields that change nothing else in a store this small."""


@pytest.mark.parametrize("field", FIELDS)
def test_any_field_of_run_json_is_found(
    patients: dict[str, Patient], field: str, request: pytest.FixtureRequest
) -> None:
    patient = patients["sokoban"]
    change_run(patient.root, FIELDS[field])
    if field not in ON_THE_CARD:
        request.getfixturevalue("rows_alone")
    try:
        assert patient.found()
    except PivotError as error:
        assert f"{patient.root / RUN}: {UNUSABLE[field]}" in str(error)


@pytest.mark.usefixtures("rows_alone")
def test_an_environment_less_is_found_in_run_json(patient: Patient) -> None:
    change_run(patient.root, lambda run: [run["config"][field].pop("sokoban") for field in ("environments", "filters")])
    assert f"{RUN}: its " in "\n".join(problems(patient.root))
    assert patient.found()


# The independent search, and real models


@pytest.fixture
def confused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the solvers of the puzzles confuse the modes; they agree with themselves."""
    modes = {"timeout": "deadlock", "deadlock": "timeout", "hole": "timeout"}
    for env in BOTH:
        solver = plugins.load("solvers", env)

        def wrong(self: Any, cases: Sequence[Case], certify: Any = solver.certify) -> list[Verdict | Unsolved]:
            return [replace(verdict, failure_mode=modes[verdict.failure_mode]) for verdict in certify(self, cases)]

        monkeypatch.setattr(solver, "certify", wrong)


@pytest.mark.usefixtures("confused", "rows_alone")
@pytest.mark.parametrize("env", BOTH)
def test_a_wrong_label_that_was_too_large_for_the_build_is_refuted_later(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover, undecided = RunEnv.prover, SimpleNamespace(prove=lambda *_: Proof(undecided="too large"))
    monkeypatch.setattr(RunEnv, "prover", lambda self, quick=False: undecided if quick else prover(self))
    root = build_tiny(tmp_path / "store", env)
    labels = read_rows(root, f"labels/v1/{env}/00000.parquet")
    assert labels and {label["proved"] for label in labels} == {None}
    assert sum("failure_mode" in problem for problem in problems(root)) == len(labels)


@pytest.fixture
def real_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stand-ins pass for real models, whose words cannot be recomputed."""
    monkeypatch.setattr(ScriptedPolicy, "is_stand_in", False)
    monkeypatch.setattr(TemplateWriter, "is_stand_in", False)


@pytest.mark.usefixtures("real_model")
def test_the_words_of_a_model_are_taken_as_they_are(tmp_path: Path) -> None:
    """Catch a verify that calls the reply of a real model a forgery, or that accepts one that contradicts its row."""
    patient = Patient(build_tiny(tmp_path / "source", "sokoban"), tmp_path / "copy")
    assert patient.found() == []
    steps, labels = (patient.file("sokoban", table) for table in ("steps", "labels"))

    def reply(text: str) -> Callable[[Rows], None]:
        return lambda rows: rows[0].update(response=text)

    first = read_rows(patient.root, steps)[0]["response"]
    change_rows(patient.root, steps, reply(first.replace("<think>", "<think>Well. ")))
    messages = patient.found()
    # The record of the whole episode shows the reply too; the steps alone cannot tell.
    assert not any(problem.startswith("steps") for problem in messages)
    assert any(problem.startswith("dataset/sokoban_episodes") and "responses" in problem for problem in messages)
    patient.heal()

    change_rows(patient.root, steps, reply("<think>no</think><action>none</action>"))
    assert any(problem.startswith("steps") and "column action" in problem for problem in patient.found())
    patient.heal()
    change_rows(patient.root, labels, lambda rows: rows[0].update(failure_reason=""))
    messages = patient.found()
    assert any(problem.startswith("labels") and "column" in problem for problem in messages), messages


@pytest.mark.parametrize("model", [False, True])
def test_a_store_whose_environment_raises_at_every_step_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, model: bool
) -> None:
    if model:
        request.getfixturevalue("real_model")
    with monkeypatch.context() as patch:
        patch.setattr(FrozenLakeEnv, "step", Mock(side_effect=OSError("no step")))
        root = build_tiny(tmp_path / "store", "frozenlake")
        assert {row["num_steps"] for row in read_rows(root, "episodes/frozenlake/00000.parquet")} == {0}
        assert problems(root) == []
    # In an environment that works again the episodes are incomplete, which a build finishes; no call is reported.
    assert not [each for each in problems(root) if each.startswith("calls ")]


@pytest.mark.usefixtures("real_model")
def test_broken_episodes_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails and an environment that breaks leave episodes that verify accepts."""
    reply, step, taken = ScriptedPolicy.reply, FrozenLakeEnv.step, itertools.count(1)

    async def moody(self: ScriptedPolicy, turn: Turn) -> Reply:
        if turn.seed % 10 == 0:
            raise PolicyError("the server is gone")
        return await reply(self, turn)

    def fragile(self: FrozenLakeEnv, action: int) -> Any:
        if next(taken) in (23, 46):
            raise OSError("the simulator is gone")
        return step(self, action)

    with monkeypatch.context() as patch:
        patch.setattr(ScriptedPolicy, "reply", moody)
        patch.setattr(FrozenLakeEnv, "step", fragile)
        root = build_tiny(tmp_path / "store", "frozenlake", rollouts=12)
    episodes = read_rows(root, "episodes/frozenlake/00000.parquet")
    assert {row["stop_reason"] for row in episodes if row["status"] == "error"} == {"policy_error", "env_error"}
    assert any(row["status"] == "complete" for row in episodes)
    assert problems(root) == []
    broken = next(row["episode_id"] for row in episodes if row["status"] == "error" and row["num_steps"])

    lie = {"status": "complete", "success": False, "failed": True, "stop_reason": "horizon", "error": None}
    lies = [row | lie if row["episode_id"] == broken else row for row in episodes]
    change_rows(root, "episodes/frozenlake/00000.parquet", lambda _: lies)
    rewrite_manifest(root)
    assert any(f"episodes {broken}: column status" in problem for problem in problems(root))


TABLES = ("episodes", "steps", "frames", "prompts", "calls", "labels")


# Any cell of any column


@pytest.mark.usefixtures("rows_alone")
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

DAMAGES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "removed": (lambda rows: rows[:-1], "is missing"),
    "doubled": (lambda rows: [rows[0], *rows], "stands there twice"),
    "reordered": (lambda rows: [rows[1], rows[0], *rows[2:]], "out of order"),
    "emptied": (lambda rows: [], "missing"),
}


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("table", [*TABLES, "dataset/sokoban", "dataset/sokoban_episodes"])
def test_rows_removed_doubled_or_out_of_order_are_found(patients: dict[str, Patient], table: str, damage: str) -> None:
    patient = patients["sokoban"]
    name = patient.file("sokoban", table)
    change, words = DAMAGES[damage]
    change_rows(patient.root, name, change)
    place = name if name.startswith("dataset") else table
    assert any(problem.startswith(place) and words in problem for problem in patient.found())


@pytest.mark.usefixtures("rows_alone")
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
    if _footer(true) == _footer(forged):  # column offsets are those of the original file
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
