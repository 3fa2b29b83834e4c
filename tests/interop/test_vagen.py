"""Evaluation folders of VAGEN: a hand-written log, our episodes and back, bounds of navigation."""

import json
import random
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pyarrow.parquet as pq
import pytest
from pivot.core.images import encode_png
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.store import Store
from pivot.datasets.verify.imports import import_problems
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.interop.distances import bound_of_turns
from pivot.interop.vagen import ACTIONS, generated_map
from pivot.tests.stores import build_tiny, problems

from .recorded import LEVEL, imports_of

ALL = ["end", "states", "rewards", "frames"]
MOST = 3
"""Actions per turn."""


def dump(
    folder: Path, env: Any, state: str, turns: list[list[str]], env_config: dict[str, Any], **metrics: Any
) -> dict[str, Any]:
    """Write the folder of one episode as VAGEN's evaluation does, and return its metrics."""
    (folder / "images").mkdir(parents=True)
    frame, _ = env.reset(options={"state": state})
    frames, rewards, infos, done, success = [frame], [], [{}], False, False
    for words in turns:
        if done:
            break
        reward, correct = 0.0, bool(words)
        for word in words:
            if word not in env.actions or done:
                break
            frame, _, terminated, _, info = env.step(env.encode_action(word))
            done, success = terminated, bool(info["success"])
            reward += 1.0 if success else 0.0
        frames.append(frame)
        rewards.append(reward + (0.02 if correct else 0.0))
        info = {"actions": words, "format_correct": correct, "success": success}
        infos.append(info | {"llm_raw_response": f"<answer>{words}"})
    for number, each in enumerate(frames, 1):
        (folder / "images" / f"turn_{number:02d}_01.png").write_bytes(encode_png(each))
    full: dict[str, Any] = {"rollout_id": folder.name, "seed": 0, "model": "tiny", "max_turns": len(turns)}
    full |= {"terminated": done, "finish_reason": "done" if done else "max_turns", "success": success}
    full |= {"rewards": rewards, "num_turns": len(rewards), "infos": infos}
    full |= {"env_config": {"max_actions_per_step": MOST, "format_reward": 0.02, **env_config}, **metrics}
    (folder / "metrics.json").write_text(json.dumps(full))
    (folder / "assistant_texts.json").write_text(json.dumps([f"text {t}" for t in range(len(turns))]))
    return full


def _dump_room(folder: Path, turns: list[list[str]], **metrics: Any) -> None:
    room = SokobanEnv(SokobanConfig(rows=4, cols=6, horizon=9))
    dump(folder, room, LEVEL, turns, {"dim_room": [4, 6]}, **metrics)


def _lake(horizon: int = 9) -> FrozenLakeEnv:
    return FrozenLakeEnv(FrozenLakeConfig(horizon=horizon))


def test_the_generator_is_that_of_vagen() -> None:
    # Computed with a transcription of the function of VAGEN, on which 1,800 other maps agree as well.
    assert [generated_map(4, 0.8, 0), generated_map(4, 0.8, 7), generated_map(8, 0.6, 3)] == [
        "FFGS\nHHFF\nFHHF\nHFFF",
        "FHFF\nFHFH\nFFFS\nFFFG",
        "HFHHHHHH\nFFFFFHFF\nFHHHFFHF\nHFSHHFFF\nFFFFGFFF\nFHFFHFFF\nFFFHFHHH\nHHHFFFFF",
    ]


@pytest.mark.parametrize(("size", "cell"), [(4, 64), (9, 56)])
def test_seeds_and_pictures_give_the_levels_and_everything_agrees(tmp_path: Path, size: int, cell: int) -> None:
    seed = next(seed for seed in range(500) if generated_map(size, 0.8, seed).startswith("S"))  # up and left do nothing
    lake, turns = generated_map(size, 0.8, seed), [["up", "left"], [], ["left", "jump", "up"]]
    player = FrozenLakeEnv(FrozenLakeConfig(size=size, cell=cell))
    dump(tmp_path / "a" / "FrozenLake_seed_5", player, lake, turns, {"is_slippery": False, "size": size}, seed=seed)
    _dump_room(tmp_path / "a" / "Sokoban_seed_1", turns)
    _dump_room(tmp_path / "a" / "Sokoban_seed_2", [["right", "right"]], max_turns=3)
    settings = {"sokoban": {"cell": 32}}
    result = pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen", settings=settings, require=ALL)
    assert result.problems == [] and result.episodes == 3
    rows = imports_of(tmp_path / "store")
    assert {row["state_source"] for row in rows} == {"seed", "picture"}
    assert all(row["frames_agree"] and row["rewards_agree"] for row in rows)
    steps = pivot.load_store(tmp_path / "store").steps.collect()
    lake_steps = steps.filter(pl.col("episode_id").is_in([rows[0]["episode_id"]]))
    assert lake_steps["action"].to_list() == ["up|left", "invalid", "left"]
    episodes = pivot.load_store(tmp_path / "store").episodes.collect()
    assert sorted(episodes["success"].to_list()) == [False, False, True]
    assert problems(tmp_path / "store") == []


def test_text_observations_give_the_room(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "Sokoban_seed_1"
    _dump_room(folder, [["up"], ["up"], ["up"]])
    for path in (folder / "images").iterdir():
        path.unlink()
    grid = LEVEL.translate(str.maketrans("# .*$@+", "#_O√XPS"))
    text = "[Initial Observation]:\n" + "\n".join("".join(f" {char} " for char in line) for line in grid.splitlines())
    example = {"role": "system", "content": " # \n # \n # "}
    (folder / "messages.json").write_text(json.dumps([example, {"role": "user", "content": text + "\nDecide."}]))
    result = pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen")
    assert result.problems == [] and result.episodes == 1


def test_oddities(tmp_path: Path) -> None:
    seed = next(seed for seed in range(500) if generated_map(4, 0.8, seed).startswith("S"))
    source, lake, turns = tmp_path / "a", generated_map(4, 0.8, seed), [["up"], ["up"], ["up"]]

    def episode(name: str, env_config: Any = None, **metrics: Any) -> Path:
        config = {"is_slippery": False} if env_config is None else env_config
        dump(source / name, _lake(), lake, turns, config, **{"seed": seed, **metrics})
        return source / name

    (episode("00_FrozenLake_last_frame") / "images" / "turn_04_01.png").unlink()
    full = json.loads((episode("01_FrozenLake_error_at_end") / "metrics.json").read_text())
    full["infos"].append({"error": "timeout"})
    (source / "01_FrozenLake_error_at_end" / "metrics.json").write_text(json.dumps(full))
    (episode("02_FrozenLake_summaries") / "assistant_texts.json").write_text(json.dumps(["one"] * 7))
    (episode("03_no_name") / "assistant_texts.json").unlink()
    torn = episode("04_FrozenLake_torn") / "metrics.json"
    torn.write_bytes(torn.read_bytes()[:200])
    episode("05_FrozenLake_few_infos", infos=[{}])
    episode("06_FrozenLake_no_turns", rewards=[], infos=[{}], finish_reason="error")
    episode("07_FrozenLake_slippery", env_config={"is_slippery": True})
    episode("08_Search", env_config={})
    episode("09_FrozenLake_stopped", max_turns=5, finish_reason="no_room")
    episode("10_FrozenLake_other_seed", seed=seed + 1)
    (source / "11_empty").mkdir()
    renamed = json.loads((episode("12_FrozenLake_renamed") / "metrics.json").read_text())
    renamed["reward"] = renamed.pop("rewards")
    (source / "12_FrozenLake_renamed" / "metrics.json").write_text(json.dumps(renamed))
    result = pivot.import_rollouts(source, tmp_path / "store", format="vagen", require=["end", "frames"])
    kinds = {problem.place[:2]: str(problem.kind) for problem in result.problems}
    expected = dict.fromkeys(("04", "05", "06", "12"), "unreadable") | dict.fromkeys(("07", "09"), "settings")
    assert kinds == expected | {"08": "environment", "10": "disagrees"}
    assert result.episodes == 4
    first = pivot.load_store(tmp_path / "store").steps.collect().filter(pl.col("t") == 0)["response"].to_list()
    assert first == ["<answer>['up']"] * 4
    assert problems(tmp_path / "store") == []


@pytest.mark.parametrize("most", [1, MOST])
def test_our_episodes_in_this_format_and_back(tmp_path: Path, most: int) -> None:
    run = {"tasks": 2, "settings": {"actions_per_turn": most, "horizon": 9 // most}}
    runs = dict.fromkeys(("frozenlake", "sokoban"), run)
    frames = pivot.load_store(build_tiny(tmp_path / "built", environments=runs))
    for row in frames.episodes.collect().to_dicts():
        turns, env = [[] if name == "invalid" else name.split("|") for name in row["actions"]], row["env"]
        lake = {"desc": row["initial_state"].splitlines(), "is_slippery": False}
        config = {**(lake if env == "frozenlake" else {"dim_room": [6, 6]}), "max_actions_per_step": most}
        player = _lake() if env == "frozenlake" else SokobanEnv(SokobanConfig(horizon=9))
        folder = tmp_path / "a" / f"{env}_{row['episode_id']}"
        dump(folder, player, row["initial_state"], turns, config, max_turns=9 // most)
    result = pivot.import_rollouts(tmp_path / "a", tmp_path / "store", format="vagen", require=ALL)
    assert result.problems == []
    ids = {row["episode_id"]: row["source_id"].partition("_")[2] for row in imports_of(tmp_path / "store")}
    names = ("pivot_step", "failure_mode", "certificate", "witness", "feasible_actions", "accepted", "proved")

    def labels(rows: pl.LazyFrame) -> dict[str, Any]:
        made = rows.collect().to_dicts()
        return {ids.get(row["episode_id"], row["episode_id"]): [row[name] for name in names] for row in made}

    expected = labels(frames.labels)
    assert len(expected) > 4 and labels(pivot.load_store(tmp_path / "store").labels) == expected


# Navigation

WORDS = {name: word for word, name in ACTIONS.items()}


def walk(folder: Path, turns: list[list[Any]], distances: list[float], **metrics: Any) -> dict[str, Any]:
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


def test_oddities_of_navigation(tmp_path: Path) -> None:
    source, still = tmp_path / "a", ["turn_left"] * 5
    walk(source / "actions run out", [still] * 6, [2.8] * 6, max_turns=10, terminated=True, finish_reason="done")
    walk(source / "turns run out", [["turn_left"], [], ["move_forward", "jump"], ["look_up"]], [2.8, 2.8, 2.5, 2.5])
    walk(source / "nothing said", [[], []], [2.8, 2.8], max_turns=2)
    walk(source / "stopped", [["move_forward"]], [3.0], max_turns=10, finish_reason="model_error")
    walk(source / "won", [["move_forward"]], [0.9], success=True, terminated=True)
    walk(source / "long steps", [["move_forward"]] * 3, [3.0, 2.0, 2.0])
    walk(source / "off the grid", [["move_forward"]] * 9, [2.8, *[2.5] * 8], env_config={"step_length": 0.25})
    walk(source / "no distance", [["move_forward"]], [3.0], infos=[{}, {"actions": ["move_forward"]}])
    walk(source / "few infos", [["move_forward"]], [3.0], infos=[{}])
    walk(source / "no turns", [], [], max_turns=3, finish_reason="error")
    torn = walk(source / "torn", [["move_forward"]], [3.0])
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
    walk(tmp_path / "a" / "one", [["turn_left"]] * 20, [2.75] * 20)
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
    walk(tmp_path / "a" / "one", [["turn_left"] * 5] * 6, [2.8] * 6, max_turns=10, terminated=True)
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
        full = walk(tmp_path / "a" / name, words, [info["dist"] for info in after], env_config=most)
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
