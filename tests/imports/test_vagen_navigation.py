"""VAGEN's episodes of navigation: lower bounds in turns of several actions, and oddities of their folders."""

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pivot
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.images import encode_png
from pivot.imports.distances import bound_of_turns
from pivot.imports.vagen_navigation import ACTIONS

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


def rows(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, (folder / name).read_text().splitlines())}


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
    for name in ("turn_01_01.png", "turn_02_01.png", "turn_02_02.png"):  # the later ones are missing
        (source / "turns run out" / "images" / name).write_bytes(frame)
    result = pivot.import_rollouts(source, tmp_path / "store", format="vagen")
    folder = result.stateless
    assert result.build is None and folder is not None
    lost = {each.place: str(each.kind) for each in result.problems if not each.kept}
    assert lost == dict.fromkeys(["no distance", "few infos", "no turns", "torn"], "unreadable")
    labels, reasons = rows(folder, "labels.jsonl"), rows(folder, "unlabelled.jsonl")
    assert labels.keys() == {"actions run out", "turns run out", "nothing said", "off the grid"}
    assert {name: row["reason"].partition(" ")[2] for name, row in reasons.items() if name != "long steps"} == {
        "stopped": "log does not say how it ended",
        "won": "reached the goal",
    }
    assert "changes by 1.000 m" in reasons["long steps"]["reason"]
    first = labels["actions run out"]  # 6 movements; after the fifth turn 5 of 30 actions are left
    assert (first["pivot_step"], first["certificate"]["budget_after"], first["certificate"]["after"]) == (4, 5, 6)
    assert (first["kind"], first["certificate"]["unit"], first["failure_mode"]) == ("lower_bound", "moves", "budget")
    second = labels["turns run out"]  # 5 movements are needed, the last turn was the last chance
    assert (second["pivot_step"], second["certificate"]["before"], second["certificate"]["budget_before"]) == (3, 5, 5)
    assert (labels["nothing said"]["pivot_step"], labels["nothing said"]["failure_mode"]) == (0, "format")
    assert labels["off the grid"]["by"]["settings"]["step"] == 0.3
    episodes = rows(folder, "episodes.jsonl")
    turns = episodes["turns run out"]["turns"]
    assert [turn["actions"] for turn in turns] == [["rotateleft"], [], ["moveahead"], ["lookup"]]
    assert ["frame" in turn for turn in turns] == [True, True, False, False]
    assert all("no state" in row["no_state"] for row in [*labels.values(), *reasons.values()])


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
        exact = [_lost(Fraction(each - 1), budget) for each, budget in zip(metres, left, strict=True)]
        pivots = [t for t in range(turns) if exact[t + 1] or (t == 0 and exact[0])]
        assert (bound.turn, bound.fallback) == ((pivots[0], False) if pivots else (turns - 1, True))
        fatal += bool(pivots)
    assert fatal > 500


def _lost(cells: Fraction, budget: int) -> bool:
    """Return whether no walk of at most ``budget`` cells covers this many."""
    return not any(walked >= cells for walked in range(budget + 1))


def test_a_state_in_the_log_gives_exact_labels(tmp_path: Path) -> None:
    """Write episodes of our rooms in turns of up to five actions, with the state text in the first info."""
    built = tmp_path / "built"
    pivot.build({"environments": {"navigation": {"tasks": 4, "settings": {}}}, "rollouts": 3}, built)
    frames = pivot.load_store(built)
    steps = frames.steps.collect().partition_by("episode_id", as_dict=True)
    episodes = {row["episode_id"]: row for row in frames.episodes.collect().to_dicts() if row["failed"]}
    for name, row in episodes.items():
        mine = steps[name,].sort("t").to_dicts()
        groups = [mine[start : start + 5] for start in range(0, len(mine), 5)]
        words = [[WORDS[step["action"]] for step in group if step["action"] in WORDS] for group in groups]
        if [len(each) for each in words] != [len(group) for group in groups]:
            continue  # VAGEN's turns end at the first word that is not an action
        distances = [json.loads(group[-1]["info"])["dist"] for group in groups]
        full = dump(tmp_path / "a" / name, words, distances)
        full["infos"][0] = {"initial_state": row["initial_state"]}
        (tmp_path / "a" / name / "metrics.json").write_text(json.dumps(full))
    result = pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen")
    assert result.problems == [] and result.episodes > 1
    [ids] = [pivot.load_store(tmp_path / "store").episodes.collect()]
    assert ids["horizon"].to_list() == [25] * result.episodes
    places = {each.place for each in result.problems}
    assert not places
    columns = ["pivot_step", "failure_mode", "certificate"]
    mine = pivot.load_store(tmp_path / "store").labels.collect().select(columns).to_dicts()
    names = [name for name in sorted(episodes) if (tmp_path / "a" / name).exists()]
    expected = {row["episode_id"]: {each: row[each] for each in columns} for row in frames.labels.collect().to_dicts()}
    assert sorted(map(json.dumps, mine)) == sorted(json.dumps(expected[name]) for name in names)
