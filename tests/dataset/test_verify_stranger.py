"""`pivot verify` on foreign stores: it follows no path, survives every file, and reports what it could not derive."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pivot
import pytest
from pivot.core.errors import ConfigError, PivotError, StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.datasets.sql.database import DERIVED, write_database
from pivot.datasets.store.run import RunEnv
from pivot.datasets.store.store import MANIFEST, RUN, Store
from pivot.datasets.verify.compare import SHOWN, contrast
from pivot.datasets.verify.verify import verify_store
from pivot.datasets.verify.views import view_problems
from pivot.environments.svg.environment import SvgConfig
from pivot.environments.svg.icons import draw_target
from pivot.environments.svg.scorers.base import Score
from pivot.environments.svg.scorers.pixel import PixelScorer
from pivot.environments.svg.sources import load_source
from pivot.labeling.replay import DisagreementError, Replays
from pivot.solvers.base import Proof
from pivot.tests.dataset.plants import rewrite_card
from pivot.tests.stores import Patient, Rows, change_rows, problems, rewrite_manifest

NESTED = "[" * 100_000 + "]" * 100_000


# Files that nobody can read


def _files(patient: Patient) -> list[str]:
    return sorted(path.relative_to(patient.source).as_posix() for path in patient.source.rglob("*") if path.is_file())


def _found(root: Path) -> list[str]:
    try:
        return problems(root)
    except PivotError as error:
        return [str(error)]


def test_a_folder_or_a_dead_link_in_place_of_any_file(lake: Patient) -> None:
    names = [name for name in _files(lake) if name != ".lock"]
    assert len(names) > 15
    for number, name in enumerate(names):
        path = lake.root / name
        path.unlink()
        path.mkdir() if number % 2 else path.symlink_to("nowhere")
        messages = _found(lake.root)
        assert messages or name.startswith(".receipts/"), name  # a shard without a receipt is rebuilt
        path.rmdir() if number % 2 else path.unlink()
        shutil.copy(lake.source / name, path)
    assert problems(lake.root) == []


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("episodes", "env_config"),
        ("episodes", "policy_config"),
        ("episodes", "initial_state"),
        ("steps", "info"),
        ("steps", "payload"),
        ("prompts", "messages"),
        ("labels", "solver_config"),
        ("labels", "target"),
    ],
)
def test_deeply_nested_json_in_a_row(lake: Patient, table: str, column: str) -> None:
    change_rows(lake.root, lake.file("frozenlake", table), lambda rows: rows[0].update({column: NESTED}))
    messages = lake.found()
    assert messages
    assert all(len(problem) < 1000 for problem in messages)


@pytest.mark.parametrize("name", [RUN, MANIFEST])
def test_deeply_nested_json_in_a_file(lake: Patient, name: str) -> None:
    (lake.root / name).write_text(NESTED)
    messages = _found(lake.root)
    assert any(name in problem for problem in messages), messages


# During a run


def test_beside_a_running_build_it_says_so(lake: Patient) -> None:
    (lake.root / MANIFEST).unlink()  # a build that resumes a store removes it first
    with LocalStorage(lake.root).lock(), pytest.raises(StoreError, match=r"is being written by another run \(process"):
        verify_store(lake.root, Reporter())
    lake.heal()
    assert problems(lake.root) == []


def test_a_store_that_changes_meanwhile_is_no_forgery(lake: Patient) -> None:
    class Relabelling(Reporter):
        def finish(self, stage: str) -> None:
            change_rows(lake.root, lake.file("frozenlake", "labels"), lambda rows: rows[:-1])
            rewrite_manifest(lake.root)

    with pytest.raises(StoreError, match="was changed by a run while it was verified; verify it again"):
        verify_store(lake.root, Relabelling())


# Differences that show


@pytest.mark.parametrize(
    ("stored", "derived", "shown"),
    [
        ({"kind": "exact", "after": 3.0}, {"kind": "exact", "after": 4.0}, "x.after holds 3.0, recomputed it is 4.0"),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "c": 4}, "x.b holds 2, recomputed it is 3 (and c)"),
        (["up", "left"], ["up", "down"], "x[1] holds 'left', recomputed it is 'down'"),
        (["up"], ["up", "down"], "x holds 1 items, recomputed 2; they differ from number 1 on: [] and ['down']"),
        ("a" * 500 + "b" + "a" * 500, "a" * 500 + "c" + "a" * 500, "aab"),
        (None, 3, "x holds None, recomputed it is 3"),
    ],
)
def test_a_difference_shows(stored: Any, derived: Any, shown: str) -> None:
    text = contrast("x", stored, derived)
    assert shown in text
    assert len(text) < 2 * SHOWN + 60


def test_certificates_that_differ_show_where(lake: Patient) -> None:
    def lie(rows: Rows) -> None:
        rows[0]["certificate"]["budget_after"] += 1

    change_rows(lake.root, lake.file("frozenlake", "labels"), lie)
    messages = lake.found()
    (shown,) = [problem for problem in messages if "column certificate" in problem and problem.startswith("labels")]
    assert "column certificate.budget_after holds" in shown


# Levels from a folder


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two levels from a folder of targets, which is gone."""
    folder = tmp_path_factory.mktemp("svg")
    (folder / "icons").mkdir()
    for seed in range(3):
        (folder / "icons" / f"{seed}.svg").write_text(draw_target(random.Random(seed)))
    settings = {"targets": str(folder / "icons")}
    pivot.build({"environments": {"svg": {"tasks": 2, "settings": settings}}, "rollouts": 2}, folder / "store")
    shutil.move(folder / "icons", folder / "elsewhere")
    load_source.cache_clear()
    return folder / "store"


def test_without_the_folder_stored_levels_are_taken_and_named(drawings: Path) -> None:
    report = verify_store(drawings, Reporter())
    assert report.problems == []
    (note,) = report.notes
    assert "levels of svg are taken as they are stored" in note
    assert "--sources" in note
    report = verify_store(drawings, Reporter(), follow=True)
    assert report.problems == []
    assert "is not a folder" in report.notes[0]


def test_with_the_folder_levels_are_made_again(drawings: Path) -> None:
    icons = drawings.parent / "icons"
    icons.symlink_to(drawings.parent / "elsewhere")
    try:
        report = verify_store(drawings, Reporter(), follow=True)
    finally:
        icons.unlink()
    assert (report.problems, report.notes) == ([], [])


def test_stored_levels_are_counted(drawings: Path, tmp_path: Path) -> None:
    patient = Patient(drawings, tmp_path / "copy")
    change_rows(patient.root, "episodes/svg/00000.parquet", lambda rows: rows[:2])
    assert "episodes of svg: 1 levels in 2 episodes; expected 2 levels in 4 episodes" in patient.found()


def test_no_path_of_a_stranger_is_followed(drawings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify follows no path in run.json, with or without its digest, and none in a row."""

    def followed(*_: Any) -> None:
        raise AssertionError("a path was followed")

    for place in ("environment.load_source", "environment.checked_source", "sources.load_source"):
        monkeypatch.setattr(f"pivot.environments.svg.{place}", followed)
    patient = Patient(drawings, tmp_path / "copy")
    assert patient.found() == []
    run = json.loads((patient.root / RUN).read_text())
    run["config"]["environments"]["svg"]["settings"]["targets_digest"] = ""
    (patient.root / RUN).write_text(json.dumps(run))
    for reader in (Store.open, problems, pivot.load_store):
        with pytest.raises(ConfigError, match="targets_digest is missing; copy it from the store's run"):
            reader(patient.root)
    patient.heal()

    def hide(rows: Rows) -> None:
        for row in rows:
            row["env_config"] = json.dumps(json.loads(row["env_config"]) | {"targets": "/etc", "targets_digest": ""})

    change_rows(patient.root, "episodes/svg/00000.parquet", hide)
    assert any("rows with other settings than those of the run" in problem for problem in patient.found())
    episode: Any = type("Episode", (), {"env": "svg", "env_config": {"targets": "/etc"}})()
    with Replays() as replays, pytest.raises(DisagreementError, match="targets names a place, which no row does"):
        replays.of(episode)


# Results that differ in the last bit


@pytest.mark.parametrize(("noise", "holds"), [(1e-5, True), (0.01, False)])
def test_scores_of_a_gpu_get_a_tolerance(
    noise: float, holds: bool, drawings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score: Callable[..., list[Score]] = PixelScorer.score

    def noisy(self: PixelScorer, *arguments: Any) -> list[Score]:
        return [Score(each.average * (1 - noise), each.parts) for each in score(self, *arguments)]

    monkeypatch.setattr(SvgConfig, "tolerance", 0.001)
    monkeypatch.setattr(PixelScorer, "score", noisy)
    assert (problems(drawings) == []) == holds


# Messages


def test_unproved_labels_are_no_problems(lake: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    class Undecided:
        def prove(self, *_: Any) -> Proof:
            return Proof(undecided="too large")

    prover = RunEnv.prover
    monkeypatch.setattr(RunEnv, "prover", lambda self, quick=False: prover(self, quick=True) if quick else Undecided())
    report = verify_store(lake.source, Reporter())
    assert report.problems == []
    assert report.unproved == report.checked["labels"] > 0


def _replace_views(root: Path, **views: str) -> None:
    with duckdb.connect(str(root / "pivot.duckdb")) as connection:
        connection.execute(f"SET file_search_path = '{root}'")
        for name, sql in views.items():
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")


def _set_version(root: Path, package: str, version: str) -> None:
    run = json.loads((root / RUN).read_text())
    run["versions"][package] = version
    (root / RUN).write_text(json.dumps(run))
    rewrite_card(root)
    rewrite_manifest(root)


@pytest.mark.parametrize("version", ["1.0.0", duckdb.__version__])
def test_views_are_compared_by_their_meaning_whatever_duckdb_wrote_them(lake: Patient, version: str) -> None:
    _set_version(lake.root, "duckdb", version)
    _replace_views(lake.root, groups=DERIVED["groups"].sql.replace("SELECT", "select  ", 1))
    assert problems(lake.root) == []


def test_a_view_that_answers_otherwise_or_could_elsewhere_is_found(lake: Patient) -> None:
    lies = {
        "modes": f"{DERIVED['modes'].sql.replace('count(*)', 'count(*) - 1')}",
        "savings": "SELECT * REPLACE ('x' AS env) FROM (" + DERIVED["savings"].sql + ")",
        "rejects": "SELECT 1 AS worded_otherwise",
        "proofs": f"SELECT * FROM ({DERIVED['proofs'].sql}) WHERE now() < '2100-01-01'::TIMESTAMPTZ",
        "writers": f"SELECT * FROM ({DERIVED['writers'].sql}) WHERE current_date < '2100-01-01'::DATE",
        "pivot_steps": f"SELECT * FROM ({DERIVED['pivot_steps'].sql}), (SELECT count(*) FROM read_text('/etc/hosts'))",
        "groups": "SELECT b.* EXCLUDE (rollouts, whole) FROM blocks b WHERE whole",
        "episodes": "SELECT * FROM read_parquet('episodes/*/*.parquet', union_by_name = true)",
    }
    for name, sql in lies.items():
        _replace_views(lake.root, **{name: sql})
        [problem, *_] = view_problems(Store.open(lake.root))
        assert problem.startswith(f"pivot.duckdb: the view main.{name} is not"), problem
        lake.heal()
    with duckdb.connect(str(lake.root / "pivot.duckdb")) as connection:
        connection.execute("CREATE MACRO round(x, y) AS 1.0")
    assert problems(lake.root) == ["pivot.duckdb: a function main.round that the run does not make"]


def test_views_and_card_name_the_files_of_the_manifest(lake: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files are named one by one; more of them by a pattern."""
    card, database = lake.root / "dataset/README.md", lake.root / "pivot.duckdb"
    assert re.search(r"frozenlake/(train|validation)-\d{5}\.parquet", card.read_text())
    with duckdb.connect(str(database), read_only=True) as connection:
        assert (
            "steps/frozenlake/00000.parquet"
            in connection.execute("SELECT sql FROM duckdb_views()").fetchall().__repr__()
        )
    for module in ("export.card", "sql.database"):
        monkeypatch.setattr(f"pivot.datasets.{module}.NAMED_FILES", 0)
    write_database(Store.open(lake.root))
    rewrite_card(lake.root)
    rewrite_manifest(lake.root)
    assert re.search(r"frozenlake/(train|validation)-\*\.parquet", card.read_text())
    with duckdb.connect(str(database), read_only=True) as connection:
        views = connection.execute("SELECT sql FROM duckdb_views()").fetchall().__repr__()
    assert "steps/*/*.parquet" in views and "prompts/*/?????-labels-v1.parquet" in views
    assert problems(lake.root) == []


def test_a_client_that_wrote_into_the_views_changes_none_of_them(lake: Patient) -> None:
    for name in ("one", "another", "a_third"):  # DuckDB rewrites the SQL of views in its own form
        with duckdb.connect(str(lake.root / "pivot.duckdb")) as connection:
            connection.execute(f"CREATE TABLE {name} AS SELECT 1 AS x")
            connection.execute(f"DROP TABLE {name}")
        assert problems(lake.root) == []


@pytest.mark.parametrize("version", ["0.0.1", "99.0", None])
def test_the_word_of_a_version_switches_no_check_off(lake: Patient, version: str | None) -> None:
    run = json.loads((lake.root / RUN).read_text())
    run["versions"]["pivot-vlm"] = version or run["versions"]["pivot-vlm"]
    del run["config"]["split"], run["versions"]["cairo"]
    (lake.root / RUN).write_text(json.dumps(run))
    rewrite_card(lake.root)
    rewrite_manifest(lake.root)
    messages = problems(lake.root)
    assert [problem.split(" ")[1] for problem in messages] == ["config", "versions"]


def test_run_json_names_what_draws_and_encodes(lake: Patient) -> None:
    named = json.loads((lake.source / RUN).read_text())["versions"]
    for name in ("cairo", "cairosvg", "opencv-python-headless", "isal", "pillow"):
        assert named[name][0].isdigit(), name
