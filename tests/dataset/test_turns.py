"""A store of turns of several actions: it verifies, and planted lies about turns are found."""

from collections.abc import Callable
from pathlib import Path

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.tests.stores import Patient, Rows, build_small, change_rows, need_at_pivots, problems

RUNS = {
    "sokoban": {"actions_per_turn": 3, "horizon": 5, "min_solution": 4, "max_solution": 13},
    "frozenlake": {"actions_per_turn": 5, "horizon": 5, "size": 6},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {name: {"tasks": 3, "settings": settings} for name, settings in RUNS.items()}
    return build_small(tmp_path_factory.mktemp("turns") / "store", environments=runs)


def test_a_store_of_long_turns_verifies(store: Path) -> None:
    labels, agreeing = need_at_pivots(store)
    assert labels == agreeing > 20
    assert problems(store) == []


def _another_turn(rows: Rows) -> None:
    for row in rows:
        if row["pivot_step"]:
            row["pivot_step"] -= 1
            return
    raise AssertionError("no label has a later pivot")


def _another_need(rows: Rows) -> None:
    next(row for row in rows if row["accepted"])["certificate"]["before"] += 1


def _single_actions(rows: Rows) -> None:
    row = next(row for row in rows if row["witness"] and "|" in row["witness"][0])
    row["witness"] = [action for turn in row["witness"] for action in turn.split("|")]


def _unsafe_turn(rows: Rows) -> None:
    row = next(row for row in rows if row["accepted"])
    row["feasible_actions"] = [*row["feasible_actions"], "up|up"]


@pytest.mark.parametrize("env", RUNS)
@pytest.mark.parametrize("lie", [_another_turn, _another_need, _single_actions, _unsafe_turn])
def test_a_planted_lie_about_turns_is_found(store: Path, tmp_path: Path, env: str, lie: Callable[[Rows], None]) -> None:
    patient = Patient(store, tmp_path / "store")
    change_rows(patient.root, patient.file(env, "labels"), lie)
    assert any("prover gives" in problem or "the witness" in problem for problem in patient.found())


def _chosen(store: Path, out: Path) -> list[tuple[str, str, int | None]]:
    """Return each chosen reply of the pairs of FrozenLake, with episode and step of the log that it comes from."""
    pivot.export(store, out, format="pairs")
    rows = [row for path in out.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return [
        (row["chosen"][0]["content"][0]["text"], row["sibling_id"], row["sibling_t"])
        for row in rows
        if row["env"] == "frozenlake" and row["sibling_id"]
    ]


def test_a_reply_of_which_a_word_was_dropped_is_not_taught(store: Path, tmp_path: Path) -> None:
    """A reply that the log reads as a safe turn, in spite of a word outside the actions, is nobody's chosen one."""
    patient = Patient(store, tmp_path / "store")
    chosen, *place = _chosen(patient.root, tmp_path / "before")[0]

    def spoil(rows: Rows) -> None:
        (step,) = (each for each in rows if [each["episode_id"], each["t"]] == place)
        assert step["response"] == chosen
        step["response"] = chosen.replace("<action>", "<action>go on, ")

    change_rows(patient.root, patient.file("frozenlake", "steps"), spoil)
    after = _chosen(patient.root, tmp_path / "after")
    assert after and not any("go on" in text for text, *_ in after)
