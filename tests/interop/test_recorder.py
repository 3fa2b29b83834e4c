"""The recorder: single and vector environments in every mode of autoreset give lines that import and agree."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pivot
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.tests.stores import problems

from .recorded import imports_of


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_a_recorded_run_imports_and_agrees_in_everything(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in (SokobanEnv, FrozenLakeEnv):
        env = pivot.Recorder(kind(), tmp_path / "source", policy="random")
        for seed in range(3):
            env.reset(seed=seed)
            ended = False
            while not ended:
                env.note(response="<think>a</think><action>up</action>", token_ids=[1, 2], logprobs=[-0.1, -0.2])
                *_, terminated, truncated, _ = env.step(int(rng.integers(5)))
                ended = terminated or truncated
        env.reset(seed=9)
        env.step(0)
        env.close()
    result = pivot.import_rollouts(
        tmp_path / "source", tmp_path / "store", require=["end", "states", "rewards", "frames"]
    )
    assert result.problems == [] and result.episodes == 8
    rows = imports_of(tmp_path / "store")
    assert all(row["frames_agree"] and row["states_agree"] and row["rewards_agree"] for row in rows)
    assert {row["source_policy"] for row in rows} == {"random"}
    steps = pivot.load_store(tmp_path / "store").steps.collect()
    assert set(steps["response"].to_list()) == {"<think>a</think><action>up</action>", ""}
    assert problems(tmp_path / "store") == []


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments(tmp_path: Path, mode: AutoresetMode) -> None:
    rng = np.random.default_rng(1)
    env = pivot.Recorder(SyncVectorEnv([FrozenLakeEnv] * 3, autoreset_mode=mode), tmp_path / "source")
    env.reset(seed=[1, 2, 3])
    for _ in range(40):
        env.note(0, response="first")
        *_, terminations, truncations, _ = env.step(rng.integers(4, size=3))
        ended = terminations | truncations
        if mode == AutoresetMode.DISABLED and ended.any():
            env.reset(options={"reset_mask": ended})
    env.close()
    records = _records(tmp_path / "source")
    assert len(records) > 12
    assert {turn.get("response") for record in records for turn in record["turns"]} == {"first", None}
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", require=["end", "rewards", "frames"])
    assert result.problems == [] and result.episodes == len(records)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments_in_other_processes(tmp_path: Path, mode: AutoresetMode) -> None:
    """Levels of later episodes come from generators in those processes, so their seeds are unknown."""
    rng = np.random.default_rng(1)
    env = pivot.Recorder(AsyncVectorEnv([FrozenLakeEnv] * 2, autoreset_mode=mode), tmp_path / "source")
    env.reset(seed=[1, 2])
    for _ in range(30):
        env.step(rng.integers(4, size=2))
    env.close()
    records = _records(tmp_path / "source")
    assert len({record["initial_state"] for record in records}) > 4
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", require=["end", "rewards", "frames"])
    assert result.problems == [] and result.episodes == len(records) > 6


def test_turns_of_several_actions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    env = pivot.Recorder(SokobanEnv(SokobanConfig(actions_per_turn=2, horizon=5)), tmp_path / "source")
    for seed in range(4):
        env.reset(seed=seed)
        ended = False
        while not ended:
            *_, terminated, truncated, _ = env.step(int(rng.integers(env.unwrapped.last_index + 1)))
            ended = terminated or truncated
    env.close()
    require = ["end", "states", "rewards", "frames"]
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", require=require)
    assert result.problems == [] and result.episodes == 4
    actions = set(pivot.load_store(tmp_path / "store").steps.collect()["action"])
    assert any("|" in action for action in actions) and {"up", "invalid"} & actions


def test_a_misspelt_note_names_the_parameters(tmp_path: Path) -> None:
    env = pivot.Recorder(SokobanEnv(), tmp_path)
    with pytest.raises(TypeError, match="no parameter 'reponse'"):
        env.note(reponse="x")
