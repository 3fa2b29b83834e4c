"""VAGEN's episodes of navigation: lower bounds in turns of several actions, and unusual folders."""

import json
import random
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.core.images import encode_png
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.store import Store
from pivot.datasets.verify.imports import import_problems
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.interop.distances import bound_of_turns
from pivot.interop.vagen import ACTIONS

from .recorded import imports_of

WORDS = {name: word for word, name in ACTIONS.items()}


def dump(folder: Path, turns: list[list[Any]], distances: list[float], **metrics: Any) -> dict[str, Any]:
    """Write the folder of an episode as VAGEN's evaluation does, without pictures."""
    folder.mkdir(parents=True)
    infos: list[dict[str, Any]] = [{}]
    for words, distance in zip(turns, distances, strict=True):
        info = {"llm_raw_response": f"<action>{words}</action>", "actions": words, "format_correct": bool(words)}
        infos.append({**info, "distance": distance, "last_action_success": True, "instruction": "go to the Bread"})
    config = {"eval_set": "base", "max_actions_per_step": 5, **metrics.pop("env_config", {})}
    full = {
        **{"rollout_id": folder.name, "env_name": "RemoteEnv", "tag_id": "navigation_base", "seed": 3},
        **{"rewards": [0.0] * len(turns), "infos": infos, "env_config": config, "max_turns": len(turns)},
        **{"success": False, "terminated": False, "finish_reason": "max_turns", **metrics},
    }
    (folder / "metrics.json").write_text(json.dumps(full))
    return full


def test_oddities(tmp_path: Path) -> None:
    source, still = tmp_path / "a", ["turn_left"] * 5
    dump(source / "actions run out", [still] * 6, [2.8] * 6, max_turns=10, terminated=True, finish_reason="done")
    dump(source / "turns run out", [["turn_left"], [], ["move_forward", "jump"], ["look_up"]], [2.8, 2.8, 2.5, 2.5])
    dump(source / "nothing said", [[], []], [2.8, 2.8], max_turns=2)
    dump(source / "stopped", [["move_forward"]], [3.0], max_turns=10, finish_reason="model_error")
    dump(source / "won", [["move_forward"]], [0.9], success=True, terminated=True)
    dump(source / "long steps", [["move_forward"]] * 3, [3.0, 2.0, 2.0])
    dump(source / "off the grid", [["move_forward"]] * 9, [2.8, *[2.5] * 8], env_config={"step_length": 0.25})
    dump(source / "no distance", [["move_forward"]], [3.0], infos=[{}, {"actions": ["move_forward"]}])
    dump(source / "few infos", [["move_forward"]], [3.0], infos=[{}])
    dump(source / "no turns", [], [], max_turns=3, finish_reason="error")
    torn = dump(source / "torn", [["move_forward"]], [3.0])
    (source / "torn" / "metrics.json").write_text(json.dumps(torn)[:-30])
    frame = encode_png(FrozenLakeEnv().reset(seed=1)[0])
    (source / "turns run out" / "images").mkdir()
    for name in ("turn_01_01.png", "turn_02_01.png", "turn_02_02.png"):  # later pictures are missing
        (source / "turns run out" / "images" / name).write_bytes(frame)
    result = pivot.import_rollouts(source, tmp_path / "store", format="vagen")
    assert result.build is not None and result.episodes == 0
    lost = {each.place: str(each.kind) for each in result.problems if not each.kept}
    assert lost == dict.fromkeys(["no distance", "few infos", "no turns", "torn"], "unreadable")
    rows = {row["place"]: row for row in imports_of(tmp_path / "store")}
    assert {name: row["left_out"] for name, row in rows.items()} == {
        name: lost.get(name, "no_state") for name in sorted(each.name for each in source.iterdir())
    }
    bounds = {name: row["bound"] for name, row in rows.items() if row["bound"] is not None}
    assert bounds.keys() == {"actions run out", "turns run out", "nothing said", "off the grid"}
    reasons = {name: row["detail"].rpartition("; ")[2] for name, row in rows.items() if name in {"stopped", "won"}}
    assert reasons == {"stopped": "the log does not say how it ended", "won": "it reached the goal"}
    assert "changes by 1.000 m" in rows["long steps"]["detail"]
    first = bounds["actions run out"]  # 6 movements; after the fifth turn 5 of 30 actions are left
    assert (first["pivot_step"], first["left"][5], first["after"]) == (4, 5, 6)
    assert (first["kind"], first["failure_mode"], first["fallback"]) == ("lower_bound", "budget", False)
    second = bounds["turns run out"]  # 5 movements are needed; the last turn lost the goal
    assert (second["pivot_step"], second["before"], second["left"][3]) == (3, 5, 5)
    assert (bounds["nothing said"]["pivot_step"], bounds["nothing said"]["failure_mode"]) == (0, "format")
    assert bounds["off the grid"]["step"] == 0.3
    assert all("no state" in row["detail"] for name, row in rows.items() if name not in lost)
    assert pivot.verify(tmp_path / "store").problems == []
    again = pivot.import_rollouts(source, tmp_path / "store", format="vagen")
    assert again.build is not None and again.build.already_complete


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nearest_start": 2.5, "farthest_start": 3.0}, None),
        ({"nearest_start": 3.5}, "starts are from 3.5"),
        ({"farthest_start": 2.0}, "to 2 m"),
    ],
)
def test_the_range_of_starts_decides(tmp_path: Path, options: dict[str, float], reason: str | None) -> None:
    dump(tmp_path / "a" / "one", [["turn_left"]] * 20, [2.75] * 20)
    pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen", options=options)
    (row,) = imports_of(tmp_path / "store")
    assert (row["bound"] is None) == (reason is not None) and (reason or "") in row["detail"]


DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "later pivot": ({"pivot_step": 5}, "its distances give 4"),
    "made by convention": ({"fallback": True}, "its distances give 4"),
    "other need": ({"after": 7}, "does not fit"),
    "other kind": ({"kind": "exact"}, "is not one of a failure"),
    "longer steps": ({"step": 0.6}, "its distances give"),
    "too few turns": ({"left": [30]}, "is not one of a failure"),
    "near enough": ({"threshold": 5.0}, "is not one of a failure"),
}


def test_verify_finds_a_changed_bound(tmp_path: Path) -> None:
    dump(tmp_path / "a" / "one", [["turn_left"] * 5] * 6, [2.8] * 6, max_turns=10, terminated=True)
    pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen")
    store = Store.open(tmp_path / "store")
    (shard,) = store.config.shards()
    (row,) = store.read(IMPORTS, shard).to_pylist()
    problems = import_problems(store)
    assert problems == []
    for name, (change, words) in DEFECTS.items():
        table = IMPORTS.table([{**row, "bound": {**row["bound"], **change}}])
        pq.write_table(table, tmp_path / "store" / store.table_file(IMPORTS, shard))
        problems = import_problems(store)
        assert any(words in problem for problem in problems), (name, problems)
    assert {*problems} < {*pivot.verify(tmp_path / "store").problems}


def test_bounds_are_sound_and_tight() -> None:
    """Compare with a search over turns and actions on a line, in which movements go straight to the target."""
    generator = random.Random(4)
    fatal = 0
    for _ in range(3000):
        turns, most, steps = generator.randint(1, 6), generator.randint(1, 4), generator.randint(1, 14)
        place, metres, left, ran = generator.randint(3, 20), list[int](), list[int](), 0
        metres.append(place)
        left.append(min(steps, most * turns))
        for t in range(turns):
            for _ in range(generator.randint(0, min(most, steps - ran))):
                place, ran = max(2, place - generator.choice([-1, 0, 1, 1])), ran + 1
            metres.append(place)
            left.append(min(steps - ran, most * (turns - t - 1)))
        bound = bound_of_turns([0.3 * each for each in metres], left, 0.3, 0.3)
        exact = [budget < each - 1 for each, budget in zip(metres, left, strict=True)]  # no walk is long enough
        pivots = [t for t in range(turns) if exact[t + 1] or (t == 0 and exact[0])]
        assert (bound.turn, bound.fallback) == ((pivots[0], False) if pivots else (turns - 1, True))
        fatal += bool(pivots)
    assert fatal > 500


def test_a_state_in_the_log_gives_exact_labels(tmp_path: Path) -> None:
    """Catch a state that is not read: episodes of two rooms in turns of two actions, with it in the first info."""
    built = tmp_path / "built"
    pivot.build({"environments": {"navigation": {"tasks": 2, "settings": {"horizon": 8}}}, "rollouts": 4}, built)
    frames = pivot.load_store(built)
    steps = frames.steps.collect().partition_by("episode_id", as_dict=True)
    episodes = {row["episode_id"]: row for row in frames.episodes.collect().to_dicts() if row["failed"]}
    for name, row in episodes.items():
        mine = steps[name,].sort("t").to_dicts()
        groups = [mine[start : start + 2] for start in range(0, len(mine), 2)]
        words = [[WORDS[step["action"]] for step in group if step["action"] in WORDS] for group in groups]
        if [len(each) for each in words] != [len(group) for group in groups]:
            continue  # VAGEN's turns end at the first word that is not an action
        after = [json.loads(group[-1]["info"]) for group in groups]
        most = {"max_actions_per_step": 2}
        full = dump(tmp_path / "a" / name, words, [info["dist"] for info in after], env_config=most)
        logged = [{**full["infos"][1 + turn], **info} for turn, info in enumerate(after)]
        full["infos"] = [{"initial_state": row["initial_state"]}, *logged]
        (tmp_path / "a" / name / "metrics.json").write_text(json.dumps(full))
    result = pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen")
    assert result.problems == [] and result.episodes > 1
    assert pivot.load_store(tmp_path / "store").episodes.collect()["horizon"].to_list() == [8] * result.episodes
    columns = ["pivot_step", "failure_mode", "certificate"]
    mine = pivot.load_store(tmp_path / "store").labels.collect().select(columns).to_dicts()
    names = [name for name in sorted(episodes) if (tmp_path / "a" / name).exists()]
    expected = {row["episode_id"]: {each: row[each] for each in columns} for row in frames.labels.collect().to_dicts()}
    assert sorted(map(json.dumps, mine)) == sorted(json.dumps(expected[name]) for name in names)
