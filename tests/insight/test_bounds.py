"""Bounds by resampling: never above the certificate, replayable, and found again when they are changed."""

import json
import random
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.cli import app
from pivot.errors import PluginError
from pivot.insight.probe.bisect import Bisection, reached_step
from pivot.insight.probe.bounds import rows_of
from pivot.tests.cli.command_line import run
from pivot.tests.imports.recorded import lines_of_store
from pivot.tests.stores import build_tiny
from typer.testing import CliRunner


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("built") / "store")


def _skilled(habits: float) -> dict[str, object]:
    return {"habits": {env: {"skill": habits, "misread": 0.0, "blunder": 0.0} for env in ("sokoban", "frozenlake")}}


def test_bounds_are_proven_and_never_above_the_certificate(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "bounds.jsonl"
    result = pivot.bound(
        built, out, {"retries": 8, "certified": True}, policy="scripted", policy_options=_skilled(20.0)
    )
    labels = {row["episode_id"]: row for row in pivot.load_store(built).labels.collect().to_dicts()}
    assert len(result.rows) == len(labels) and result.errors == 0
    assert all(row.proven <= labels[row.episode_id]["pivot_step"] for row in result.rows)
    reached = sum(row.proven == labels[row.episode_id]["pivot_step"] for row in result.rows)
    assert reached >= len(labels) - 1  # the policy plays nearly always best
    assert all(row.kind == "bound" and row.retries <= 24 for row in result.rows)
    assert pivot.bound_problems(built, out) == [] and rows_of(out) == list(result.rows)
    after = next(row for row in result.rows if row.chance_step is not None)
    assert after.chance_at_most == min(1.0, 3 / after.tried[after.proven + 1])


def test_exact_labels_need_no_bound(built: Path, tmp_path: Path) -> None:
    assert pivot.bound(built, tmp_path / "bounds.jsonl").rows == []


def test_a_changed_bound_is_found(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "bounds.jsonl"
    pivot.bound(built, out, {"retries": 4, "certified": True}, policy="scripted", policy_options=_skilled(20.0))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    index = next(index for index, row in enumerate(rows) if 0 < row["proven"] < row["num_steps"] - 1)
    for change in (
        {"proven": rows[index]["num_steps"] - 1},
        {"actions": ["up"] * len(rows[index]["actions"])},
        {"actions": None},
        {"chance_at_most": 0.01, "chance_step": rows[index]["proven"] + 1},
        {"episode_id": "none"},
        {"posterior": 0.5},
    ):
        changed = [row | (change if number == index else {}) for number, row in enumerate(rows)]
        out.write_text("".join(json.dumps(row) + "\n" for row in changed))
        assert len(pivot.bound_problems(built, out)) == 1, change
    stuck = {"actions": ["up"] * len(rows[index]["actions"])}
    assert "does not reach the goal" in _first(built, out, rows, index, stuck)


def _first(built: Path, out: Path, rows: Any, index: int, change: Any) -> str:
    out.write_text(json.dumps(rows[index] | change) + "\n")
    return pivot.bound_problems(built, out)[0]


def test_imported_failures_are_bounded_by_another_policy(built: Path, tmp_path: Path) -> None:
    pivot.import_rollouts(lines_of_store(built, tmp_path / "source"), tmp_path / "store")
    with pytest.raises(PluginError, match="cannot be played again"):
        pivot.bound(tmp_path / "store", tmp_path / "bounds.jsonl", {"certified": True})
    chosen = {"retries": 2, "certified": True}
    result = pivot.bound(
        tmp_path / "store", tmp_path / "bounds.jsonl", chosen, policy="scripted", policy_options=_skilled(20.0)
    )
    assert any(row.proven for row in result.rows)
    assert pivot.bound_problems(tmp_path / "store", tmp_path / "bounds.jsonl") == []


def test_the_command(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "bounds.jsonl"
    shown = run("bound", built, "--out", out, "--certified", "--retries", "2")
    assert "pivots are proven" in shown
    assert "reaches the goal again" in run("bound", built, "--out", out, "--check")
    out.write_text("{}\n")
    failed = CliRunner().invoke(app, ["bound", str(built), "--out", str(out), "--check"])
    assert failed.exit_code == 1 and "line 1" in failed.output


def test_the_bisection_finds_the_last_step_that_can_be_won() -> None:
    rng = random.Random(0)
    for last in range(1, 25):
        for truth in range(last + 1):
            search = Bisection(last, 4, 200)
            while (step := search.next_step()) is not None:
                assert search.proven < step <= last
                search.add(step, step if step <= truth and rng.random() < 0.7 else None)
            assert search.proven == truth
            assert search.played <= 200


def test_a_bisection_takes_few_retries_of_a_policy_that_always_wins() -> None:
    for truth in range(1000):
        search = Bisection(999, 2, 200)
        while search.proven < truth and (step := search.next_step()) is not None:
            search.add(step, step if step <= truth else None)
        assert search.proven == truth and search.played <= 60


def test_states_on_the_way_count_only_with_as_many_turns_left() -> None:
    failure = ["a", "b", "c", "d"]
    assert reached_step(failure, ["a", "b", "c", "x"], 1) == 2
    assert reached_step(failure, ["a", "c", "x"], 1) == 1  # the retry was there with more turns left
    assert reached_step(failure, ["a", "b", "x", "y", "c"], 1) == 2  # later than the failure: fewer turns sufficed
    assert reached_step(failure, ["a", "x", "y"], 1) == 1
