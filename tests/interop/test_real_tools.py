"""Logs written by the tools themselves, with a stub as the model: run by ``make test WHAT=importers``."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.images import encode_png
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.tests.stores import problems

from .recorded import imports_of

ENVIRONMENTS = os.environ.get("PIVOT_IMPORTERS", "")
"""Folder with one virtual environment per tool."""
pytestmark = pytest.mark.skipif(not ENVIRONMENTS, reason="needs the tools: make test WHAT=importers")

LAKE = "SFFF\nFHFH\nFFFH\nHFFG"
TURNS = (
    ["right", "up", "up", "left", "down", "down"],  # wastes turns: too late after step 1
    ["right", "down"],  # falls into the hole
    ["down", "down", "right", "down", "right", "right"],  # wins
)


def plays() -> list[dict[str, Any]]:
    """Play three episodes, and return them as plain data for the scripts."""
    made = []
    for moves in TURNS:
        env = FrozenLakeEnv(FrozenLakeConfig(horizon=6))
        frame, _ = env.reset(options={"state": LAKE})
        frames, success = [frame], False
        for move in moves:
            frame, *_, info = env.step(env.encode_action(move))
            frames.append(frame)
            success = bool(info["success"])
        urls = [f"data:image/png;base64,{base64.b64encode(encode_png(each)).decode()}" for each in frames]
        replies = [f"<think>so</think><action>{move}</action>" for move in moves]
        facts = {"env": "frozenlake", "env_config": {"horizon": 6}, "initial_state": LAKE}
        made.append({"frames": urls, "replies": replies, "moves": moves, "success": success, "facts": facts})
    return made


@pytest.mark.parametrize("tool", ["inspect", "verifiers"])
def test_a_log_of_the_tool_itself_is_labelled(tmp_path: Path, tool: str) -> None:
    (tmp_path / "plays.json").write_text(json.dumps(plays()))
    (tmp_path / "logs").mkdir()
    script = Path(__file__).parent / "writers" / f"{tool}_log.py"
    python = Path(ENVIRONMENTS) / tool / "bin" / "python"
    subprocess.run([python, script, tmp_path / "plays.json", tmp_path / "logs"], check=True, cwd=tmp_path)
    result = pivot.import_rollouts(tmp_path / "logs", tmp_path / "store", format=tool, require=["end", "frames"])
    assert result.problems == [] and result.episodes == 3
    store = pivot.load_store(tmp_path / "store")
    rows = store.episodes.join(store.labels, on="episode_id", how="left").collect().to_dicts()
    shown = ((len(row["actions"]), row["success"], row["pivot_step"], row["failure_mode"]) for row in rows)
    outcomes = sorted(shown, key=str)
    expected = [
        pivot.certify("frozenlake", LAKE, moves, 6) if not success else None
        for moves, success in zip(TURNS, (False, False, True), strict=True)
    ]
    labels = [
        (len(moves), verdict is None, verdict and verdict.pivot_step, verdict and verdict.failure_mode)
        for moves, verdict in zip(TURNS, expected, strict=True)
    ]
    assert outcomes == sorted(labels, key=str)
    assert all(row["frames_agree"] for row in imports_of(tmp_path / "store"))
    if tool == "verifiers":
        assert store.steps.collect()["response_token_ids"].null_count() == 0
    assert problems(tmp_path / "store") == []
