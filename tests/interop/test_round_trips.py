"""Round trips: episodes of our stores, written in the format of each program and read back, get the same labels."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.solvers.navigation.room import read_state
from pivot.tests.stores import build_tiny, problems

from . import formats
from .recorded import imports_of, lines_of_store

LABEL = ("pivot_step", "failure_mode", "certificate", "witness", "feasible_actions", "accepted", "proved")
WRITERS: dict[str, formats.Writer] = {
    "openai": formats.write_openai,
    "ShareGPT": formats.write_sharegpt,
    "prompt and completion": formats.write_results,
    "verifiers": formats.write_traces,
    "verifiers before 0.4": formats.write_old_traces,
    "inspect": formats.write_inspect,
    "inspect as JSON": formats.write_inspect_json,
    "verl": formats.write_verl,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose turns have up to three actions."""
    settings = {"actions_per_turn": 3, "horizon": 3}
    runs = {name: {"tasks": 3, "settings": settings} for name in ("sokoban", "frozenlake")}
    return build_tiny(tmp_path_factory.mktemp("built") / "store", environments=runs)


def labels(root: Path, names: dict[str, str] | None = None) -> dict[str, Any]:
    rows = pivot.load_store(root).labels.collect().to_dicts()
    ids = [str(row["episode_id"]) for row in rows]
    return {(names or {}).get(name, name): [row[each] for each in LABEL] for name, row in zip(ids, rows, strict=True)}


def same_labels(built: Path, root: Path, result: Any, chats: Sequence[formats.Chat] = ()) -> None:
    assert result.problems == []
    rows = imports_of(root)
    names = {row["episode_id"]: formats.chat_of(row, chats).name if chats else row["source_id"] for row in rows}
    expected = labels(built)
    assert len(expected) > 4 and labels(root, names) == expected
    steps = pivot.load_store(root).steps.collect()
    assert steps.height == pivot.load_store(built).steps.collect().height
    assert problems(root) == []


@pytest.mark.parametrize("name", WRITERS)
def test_other_formats(built: Path, tmp_path: Path, name: str) -> None:
    source, store = tmp_path / "source", tmp_path / "store"
    chats = formats.chats_of(built, source)
    require = ["end", "states", "rewards", "frames"]
    result = pivot.import_rollouts(**WRITERS[name](source, chats), out=store, require=require)
    same_labels(built, store, result, chats)
    assert all(row["frames_agree"] for row in imports_of(store))
    steps = pivot.load_store(store).steps.collect()
    if name.startswith("verifiers"):
        assert [2, 3] in steps["response_token_ids"].to_list()
    if name == "verifiers":
        assert set(steps["finish_reason"]) == {"length"}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of the environments whose turns have one action."""
    runs = {name: {"tasks": 1, "settings": {}} for name in ("navigation", "primitiveskill", "svg")}
    root = tmp_path_factory.mktemp("others") / "store"
    pivot.build({"environments": runs, "rollouts": 3}, root)
    return root


@pytest.mark.parametrize("name", ["own", "openai", "ShareGPT", "verifiers", "inspect", "verl"])
def test_environments_of_one_action_per_turn(others: Path, tmp_path: Path, name: str) -> None:
    """Catch an action or a state of another environment that a format changes; VAGEN has tests of its own."""
    source = tmp_path / "source"
    if name == "own":
        pivot.import_rollouts(lines_of_store(others, source), tmp_path / "store")
    else:
        pivot.import_rollouts(**WRITERS[name](source, formats.chats_of(others, source)), out=tmp_path / "store")
    imported = pivot.load_store(tmp_path / "store").labels.collect()
    assert set(pivot.load_store(tmp_path / "store").episodes.collect()["env"]) == {
        "navigation",
        "primitiveskill",
        "svg",
    }
    ours = sorted(json.dumps(values, default=str) for values in labels(others).values())
    assert len(ours) > 3 and imported.height == len(ours)
    assert sorted(json.dumps(values, default=str) for values in labels(tmp_path / "store").values()) == ours


def test_own_format(built: Path, tmp_path: Path) -> None:
    result = pivot.import_rollouts(lines_of_store(built, tmp_path / "source"), tmp_path / "store")
    same_labels(built, tmp_path / "store", result)
    assert all(counts[False] == 0 for counts in result.compared.values())
    agree = ("frames_agree", "rewards_agree", "end_agrees")
    assert all(row[name] for row in imports_of(tmp_path / "store") for name in agree)


def test_distances_of_navigation_give_the_same_pivots(tmp_path: Path) -> None:
    """Write episodes of navigation with their distances in place of their states."""
    built = tmp_path / "built"
    pivot.build({"environments": {"navigation": {"tasks": 2, "settings": {}}}, "rollouts": 4}, built)
    rows = {row["episode_id"]: row for row in pivot.load_store(built).labels.collect().to_dicts()}
    path = lines_of_store(built, tmp_path / "source") / "episodes.jsonl"
    lines = []
    for line in map(json.loads, path.read_text().splitlines()):
        start = read_state(line.pop("initial_state"), 1.5).start_distance
        mine = pivot.load_store(built).steps.filter(episode_id=line["id"]).sort("t").collect()["info"]
        distances = [start, *(json.loads(info)["dist"] for info in mine)]
        del line["seed"]
        lines += [json.dumps({**line, "distances": distances})] if line["id"] in rows else []
    path.write_text("\n".join(lines) + "\n")
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store")
    assert result.episodes == 0 and all(problem.kept for problem in result.problems)
    bounds = {row["source_id"]: row["bound"] for row in imports_of(tmp_path / "store")}
    assert bounds.keys() == rows.keys() and len(rows) > 3
    for name, bound in bounds.items():
        facts = rows[name]["certificate"]
        assert (bound["kind"], bound["pivot_step"]) == (facts["kind"], rows[name]["pivot_step"])
        assert (bound["before"], bound["after"]) == (facts["before"], facts["after"])
