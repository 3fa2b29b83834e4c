"""`pivot verify` on foreign stores: it follows no path, survives every file, and reports what it could not derive."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import duckdb
import pivot
import pytest
from pivot.core.errors import ConfigError, PivotError, StoreError
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.datasets.sql.database import DERIVED, write_database
from pivot.datasets.store.run import RunEnv
from pivot.datasets.store.store import DATABASE, MANIFEST, RUN, Store
from pivot.datasets.verify.compare import SHOWN, contrast
from pivot.datasets.verify.replay import ReplayedRun
from pivot.datasets.verify.verify import verify_store
from pivot.datasets.verify.views import view_problems
from pivot.environments.svg.environment import SvgConfig
from pivot.environments.svg.icons import draw_target
from pivot.environments.svg.scorers.base import Score
from pivot.environments.svg.scorers.pixel import PixelScorer
from pivot.environments.svg.sources import load_source
from pivot.labeling.replay import DisagreementError, Replays
from pivot.solvers.base import Proof
from pivot.tests.dataset.plants import change_run, rewrite_card, run_sql
from pivot.tests.stores import Patient, Rows, change_rows, problems, rewrite_manifest

pytestmark = pytest.mark.usefixtures("no_views")
NESTED = "[" * 100_000 + "]" * 100_000


# Files that nobody can read


def _of_views(root: Path) -> list[str]:
    return view_problems(Store.open(root))


def _found(root: Path, check: Callable[[Path], list[str]] = problems) -> list[str]:
    try:
        return check(root)
    except PivotError as error:
        return [str(error)]


def test_a_folder_or_a_dead_link_in_place_of_any_file(lake: Patient) -> None:
    """Catch a reader that follows a link, or that ends with a traceback where a file should be."""
    paths = sorted(path for path in lake.root.rglob("*") if path.is_file() and path.name != ".lock")
    assert len(paths) > 15
    for number, path in enumerate(paths):
        path.unlink()
        path.mkdir() if number % 2 else path.symlink_to("nowhere")
        messages = _found(lake.root, _of_views if path.name == DATABASE else problems)
        assert messages or ".receipts" in path.parts, path  # a shard without a receipt is rebuilt
        path.rmdir() if number % 2 else path.unlink()
        shutil.copy(lake.source / path.relative_to(lake.root), path)
    assert problems(lake.root) == []


JSON_CELLS = """episodes.env_config episodes.policy_config episodes.initial_state steps.info steps.payload
    prompts.messages labels.solver_config labels.target"""


@pytest.mark.parametrize("cell", JSON_CELLS.split())
def test_deeply_nested_json_in_a_row(lake: Patient, cell: str) -> None:
    table, column = cell.split(".")
    change_rows(lake.root, lake.file("frozenlake", table), lambda rows: rows[0].update({column: NESTED}))
    messages = lake.found()
    assert messages and all(len(problem) < 1000 for problem in messages)


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
    assert shown in text and len(text) < 2 * SHOWN + 60


# Levels from a folder


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two levels, one of them drawn twice, from a folder of targets that is gone."""
    folder = tmp_path_factory.mktemp("svg")
    (folder / "icons").mkdir()
    for seed in range(3):
        (folder / "icons" / f"{seed}.svg").write_text(draw_target(random.Random(seed)))
    levels = {"tasks": 3, "drawn": [0, 1, 0], "tasks_per_shard": 2, "settings": {"targets": str(folder / "icons")}}
    pivot.build({"environments": {"svg": levels}, "rollouts": 2}, folder / "store")
    shutil.move(folder / "icons", folder / "elsewhere")
    load_source.cache_clear()
    return folder / "store"


def test_without_the_folder_stored_levels_are_taken_and_named(drawings: Path) -> None:
    report = verify_store(drawings, Reporter())
    assert report.problems == []
    (note,) = report.notes
    assert "levels of svg are taken as they are stored" in note and "--sources" in note
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
    assert "episodes of svg: 1 levels in 4 episodes; expected 2 levels in 6 episodes" in patient.found()


def test_no_path_of_a_stranger_is_followed(drawings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify follows no path in run.json, with or without its digest, and none in a row."""

    for place in ("environment.load_source", "environment.checked_source", "sources.load_source"):
        monkeypatch.setattr(f"pivot.environments.svg.{place}", Mock(side_effect=AssertionError("a path was followed")))
    patient = Patient(drawings, tmp_path / "copy")
    assert patient.found() == []
    replay = ReplayedRun(Store.open(drawings).run, None, None, follow=False)
    assert replay.envs["svg"].config.levels_from_elsewhere is None
    change_run(patient.root, lambda run: run["config"]["environments"]["svg"]["settings"].update(targets_digest=""))
    for reader in (Store.open, problems, pivot.load_store):
        with pytest.raises(ConfigError, match="targets_digest is missing; copy it from the store's run"):
            reader(patient.root)
    patient.heal()

    def hide(rows: Rows) -> None:
        for row in rows:
            row["env_config"] = json.dumps(json.loads(row["env_config"]) | {"targets": "/etc", "targets_digest": ""})

    change_rows(patient.root, "episodes/svg/00000.parquet", hide)
    assert any("rows with other settings than those of the run" in problem for problem in patient.found())
    episode: Any = SimpleNamespace(env="svg", env_config={"targets": "/etc"})
    with Replays() as replays, pytest.raises(DisagreementError, match="targets names a place, which no row does"):
        replays.of(episode)


# Results that differ in the last bit


def test_scores_of_a_gpu_get_a_tolerance(drawings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score: Callable[..., list[Score]] = PixelScorer.score
    monkeypatch.setattr(SvgConfig, "tolerance", 0.001)
    for noise, holds in ((1e-5, True), (0.01, False)):
        noisy = lambda *each, noise=noise: [Score(one.average * (1 - noise), one.parts) for one in score(*each)]  # noqa: E731
        monkeypatch.setattr(PixelScorer, "score", noisy)
        assert (problems(drawings) == []) == holds


# Messages


def test_unproved_labels_are_no_problems(lake: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    prover, undecided = RunEnv.prover, SimpleNamespace(prove=lambda *_: Proof(undecided="too large"))
    monkeypatch.setattr(RunEnv, "prover", lambda self, quick=False: prover(self, quick=True) if quick else undecided)
    report = verify_store(lake.source, Reporter())
    assert report.problems == []
    assert report.unproved == report.checked["labels"] > 0


def test_views_are_compared_by_their_meaning_whatever_duckdb_wrote_them(lake: Patient) -> None:
    change_run(lake.root, lambda run: run["versions"].update(duckdb="1.0.0"))
    rewrite_card(lake.root)
    rewrite_manifest(lake.root)
    run_sql(lake.root, f"CREATE OR REPLACE VIEW groups AS {DERIVED['groups'].sql.replace('SELECT', 'select  ', 1)}")
    assert problems(lake.root) + _of_views(lake.root) == []


def test_a_view_that_answers_otherwise_or_could_elsewhere_is_found(lake: Patient) -> None:
    lies = {
        "modes": DERIVED["modes"].sql.replace("count(*)", "count(*) - 1"),
        "savings": "SELECT * REPLACE ('x' AS env) FROM (" + DERIVED["savings"].sql + ")",
        "rejects": "SELECT 1 AS worded_otherwise",
        "proofs": f"SELECT * FROM ({DERIVED['proofs'].sql}) WHERE now() < '2100-01-01'::TIMESTAMPTZ",
        "writers": f"SELECT * FROM ({DERIVED['writers'].sql}) WHERE current_date < '2100-01-01'::DATE",
        "pivot_steps": f"SELECT * FROM ({DERIVED['pivot_steps'].sql}), (SELECT count(*) FROM read_text('/etc/hosts'))",
        "groups": "SELECT b.* EXCLUDE (rollouts, whole) FROM blocks b WHERE whole",
        "episodes": "SELECT * FROM read_parquet('episodes/*/*.parquet', union_by_name = true)",
    }
    run_sql(lake.root, *(f"CREATE OR REPLACE VIEW {name} AS {sql}" for name, sql in lies.items()))
    run_sql(lake.root, "CREATE MACRO round(x, y) AS 1.0")
    messages = _of_views(lake.root)
    assert messages[0].startswith("pivot.duckdb: a function main.round that the run does not make; remove pivot.duckdb")
    assert [each.split(" is not ")[0] for each in messages[1:]] == [
        f"pivot.duckdb: the view main.{name}" for name in sorted(lies)
    ]


def test_views_and_card_name_the_files_of_the_manifest(lake: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files are named one by one; more of them by a pattern."""
    card = lake.root / "dataset/README.md"

    def views() -> str:
        with duckdb.connect(str(lake.root / "pivot.duckdb"), read_only=True) as connection:
            return str(connection.execute("SELECT sql FROM duckdb_views()").fetchall())

    assert re.search(r"frozenlake/(train|validation)-\d{5}\.parquet", card.read_text())
    assert "steps/frozenlake/00000.parquet" in views()
    for module in ("export.card", "sql.database"):
        monkeypatch.setattr(f"pivot.datasets.{module}.NAMED_FILES", 0)
    write_database(Store.open(lake.root))
    rewrite_card(lake.root)
    rewrite_manifest(lake.root)
    assert re.search(r"frozenlake/(train|validation)-\*\.parquet", card.read_text())
    assert "steps/*/*.parquet" in views() and "prompts/*/?????-labels-v1.parquet" in views()
    assert problems(lake.root) + _of_views(lake.root) == []


def test_a_client_that_wrote_into_the_views_changes_none_of_them(lake: Patient) -> None:
    for name in ("one", "another", "a_third"):  # DuckDB rewrites the SQL of views in its own form
        run_sql(lake.root, f"CREATE TABLE {name} AS SELECT 1 AS x", f"DROP TABLE {name}")
        assert _of_views(lake.root) == []


@pytest.mark.usefixtures("rows_alone")
@pytest.mark.parametrize("version", ["0.0.1", "99.0", None])
def test_the_word_of_a_version_switches_no_check_off(lake: Patient, version: str | None) -> None:
    def change(run: dict[str, Any]) -> None:
        run["versions"]["pivot-vlm"] = version or run["versions"]["pivot-vlm"]
        del run["config"]["split"], run["versions"]["cairo"]

    change_run(lake.root, change)
    assert [problem.split(" ")[1] for problem in lake.found()] == ["config", "versions"]


def test_run_json_names_what_draws_and_encodes(lake: Patient) -> None:
    named = json.loads((lake.source / RUN).read_text())["versions"]
    for name in ("cairo", "cairosvg", "opencv-python-headless", "isal", "pillow"):
        assert named[name][0].isdigit(), name
