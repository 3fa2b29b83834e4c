"""The fixed benchmark, scaled down: built from seeds, the same failures in both logs, one table, JSON, a picture."""

import json
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.errors import TrainingError
from pivot.images import decode
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.training.analyzers import asked, reads, served_backend
from pivot.training.analyzer import Analyzer
from pivot.training.evaluation.analyzer import read_labels
from pivot.training.evaluation.suite import (
    FAILURES,
    LEVELS,
    LOGS,
    build_suite,
    fingerprint,
    run_suite,
    suite_choice,
    suite_config,
    suite_rows,
    write_suite,
)
from pivot.training.records import Records, open_records

SMALL = {"sokoban": 6, "svg": 4}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Records]:
    """A small suite of two environments."""
    return build_suite(tmp_path_factory.mktemp("suite"), pivot.build, SMALL)


def test_the_suite_is_what_it_says() -> None:
    assert set(LEVELS) == {"sokoban", "frozenlake", "navigation", "primitiveskill", "svg"}
    assert FAILURES == 500
    full, actions = (suite_config(log) for log in LOGS)
    assert full | {"log": "actions"} == actions


def test_both_logs_hold_the_same_failures_and_differ_in_the_log_alone(stores: dict[str, Records]) -> None:
    labels = {log: read_labels(records, suite_choice()) for log, records in stores.items()}
    assert fingerprint(labels["full"]) == fingerprint(labels["actions"])
    for full, bare in zip(labels["full"].rows, labels["actions"].rows, strict=True):
        assert full["episode_id"] == bare["episode_id"]
        assert "moved=" in full["action_log"] or "valid_svg=" in full["action_log"]
        assert all(len(line.split()) == 3 for line in bare["action_log"].splitlines()), bare["action_log"]
        labels = ("pivot_step", "failure_mode", "actions", "initial_state")
        assert [full[name] for name in labels] == [bare[name] for name in labels]


def test_nothing_is_played_twice_and_every_file_is_that_of_a_build_of_its_own(tmp_path: Path) -> None:
    levels = {"frozenlake": 4}
    built: list[tuple[str, int, int]] = []

    def build(config: Any, root: Path) -> None:
        result = pivot.build(config, root)
        built.append((root.name, result.reused_shards, result.shards))

    build_suite(tmp_path / "suite", build, levels)
    assert [(log, reused > 0) for log, reused, _ in built] == [("full", False), ("actions", True)]
    pivot.build(suite_config("actions", levels), tmp_path / "alone")
    assert _manifest(tmp_path / "suite" / "actions") == _manifest(tmp_path / "alone")


def _manifest(store: Path) -> dict[str, Any]:
    files = json.loads((store / "manifest.json").read_text(encoding="utf-8"))["files"]
    return {name: record for name, record in files.items() if not name.startswith("calls/")}


def test_the_suite_runs_and_refuses_too_few(stores: dict[str, Records]) -> None:
    seen: list[str] = []

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        seen.append(asked(body)[0])
        return reads(body)

    with served(reply) as server:

        def make(shots: Any) -> Analyzer:
            return Analyzer(served_backend(server.url), shots)

        choice = suite_choice(failures=4)
        summary, evaluations = run_suite(stores, make, choice, learned=False)
        with pytest.raises(TrainingError, match="the suite needs 500"):
            run_suite(stores, make, suite_choice(), learned=False)
        again, _ = run_suite(stores, make, choice, learned=False, shots=1)
    assert len(seen) == 2 * 2 * 2 * 4
    assert summary["fingerprint"] == again["fingerprint"]
    assert [row[:2] for row in suite_rows(summary)] == [
        [env, log] for env in ("sokoban", "svg") for log in ("full", "actions")
    ]
    assert {log: len(each.readings) for log, each in evaluations.items()} == {"full": 8, "actions": 8}
    assert all(figures["baselines"]["majority"] for figures in summary["logs"]["full"].values())


@pytest.mark.train
def test_table_json_and_picture(stores: dict[str, Records], tmp_path: Path) -> None:
    with served(reads) as server:
        summary, evaluations = run_suite(
            stores, lambda shots: Analyzer(served_backend(server.url), shots), suite_choice(failures=4), learned=False
        )
    names = write_suite(tmp_path, summary, evaluations)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert json.loads((tmp_path / "suite.json").read_text(encoding="utf-8"))["fingerprint"] == summary["fingerprint"]
    table = (tmp_path / "suite.md").read_text(encoding="utf-8")
    assert table.count("| svg | ") == 2
    assert MODEL in table
    assert decode((tmp_path / "suite.png").read_bytes()).std() > 10


def test_a_changed_store_is_another_benchmark(stores: dict[str, Records], tmp_path: Path) -> None:
    """The fingerprint is of failures and labels, so that it shows whether figures of two machines compare."""
    other = suite_config("full", SMALL) | {"seed": 1}
    pivot.build(other, tmp_path / "other")
    mine, theirs = (
        read_labels(each, suite_choice()) for each in (stores["full"], open_records(str(tmp_path / "other")))
    )
    assert fingerprint(mine) != fingerprint(theirs)
