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
ENVIRONMENTS = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")
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
    """Return a store of all environments; turns of the grids have up to three actions, those of the others have one."""
    grids = {"tasks": 2, "settings": {"actions_per_turn": 3, "horizon": 3}}
    runs: dict[str, Any] = {name: {"tasks": 1, "settings": {}} for name in ENVIRONMENTS[3:]}
    runs |= {"navigation": {"tasks": 2, "settings": {"horizon": 6}}, "sokoban": grids, "frozenlake": grids}
    return build_tiny(tmp_path_factory.mktemp("built") / "store", environments=runs)


def labels(root: Path, names: dict[str, str] | None = None) -> dict[str, Any]:
    rows = pivot.load_store(root).labels.collect().to_dicts()
    ids = [str(row["episode_id"]) for row in rows]
    return {(names or {}).get(name, name): [row[each] for each in LABEL] for name, row in zip(ids, rows, strict=True)}


def same_labels(built: Path, root: Path, result: Any, chats: Sequence[formats.Chat] = ()) -> None:
    assert result.problems == []
    rows = imports_of(root)
    names = {row["episode_id"]: formats.chat_of(row, chats).name if chats else row["source_id"] for row in rows}
    assert labels(root, names) == labels(built)
    mine, theirs = pivot.load_store(root), pivot.load_store(built)
    labelled = theirs.labels.join(theirs.episodes, on="episode_id").collect()
    assert {*labelled["env"]} == {*ENVIRONMENTS} and labelled.height > 7
    assert mine.steps.collect().height == theirs.steps.collect().height
    assert problems(root) == []


@pytest.mark.parametrize("name", WRITERS)
def test_other_formats(built: Path, tmp_path: Path, name: str) -> None:
    """Catch an action or a state of any environment that a format changes; VAGEN has tests of its own."""
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


def test_own_format(built: Path, tmp_path: Path) -> None:
    result = pivot.import_rollouts(lines_of_store(built, tmp_path / "source"), tmp_path / "store")
    same_labels(built, tmp_path / "store", result)
    assert all(counts[False] == 0 for counts in result.compared.values())
    agree = ("frames_agree", "rewards_agree", "end_agrees")
    assert all(row[name] for row in imports_of(tmp_path / "store") for name in agree)


def test_distances_of_navigation_give_the_same_pivots(built: Path, tmp_path: Path) -> None:
    """Write episodes of navigation with their distances in place of their states."""
    rows = {row["episode_id"]: row for row in pivot.load_store(built).labels.collect().to_dicts()}
    path = lines_of_store(built, tmp_path / "source") / "episodes.jsonl"
    played = pivot.load_store(built).steps.sort("t").collect().partition_by("episode_id", as_dict=True)
    lines, recorded = [], [json.loads(line) for line in path.read_text().splitlines()]
    for line in (each for each in recorded if each["env"] == "navigation" and each["id"] in rows):
        start = read_state(line.pop("initial_state"), 1.5).start_distance
        distances = [start, *(json.loads(info)["dist"] for info in played[line["id"],]["info"])]
        del line["seed"]
        lines.append(json.dumps({**line, "distances": distances}))
    path.write_text("\n".join(lines) + "\n")
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store")
    assert result.episodes == 0 and all(problem.kept for problem in result.problems)
    bounds = {row["source_id"]: row["bound"] for row in imports_of(tmp_path / "store")}
    assert len(bounds) == len(lines) > 1
    for name, bound in bounds.items():
        facts = rows[name]["certificate"]
        assert (bound["kind"], bound["pivot_step"]) == (facts["kind"], rows[name]["pivot_step"])
        assert (bound["before"], bound["after"]) == (facts["before"], facts["after"])
