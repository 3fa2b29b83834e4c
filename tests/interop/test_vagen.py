"""Evaluation folders of VAGEN: a hand-written log with oddities, and our episodes in its format and back."""

import json
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.core.images import encode_png
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.interop.vagen import generated_map
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
