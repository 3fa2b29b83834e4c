"""Recorded episodes for tests: the rows of a store as JSON lines, and hand-written ones."""

import json
from pathlib import Path
from typing import Any

import pivot
import polars as pl
from pivot.core.images import decode, encode_png

LEVEL = "######\n#@ $.#\n#    #\n######"
"""A level of Sokoban that takes two moves."""
SETTINGS: dict[str, Any] = {"rows": 4, "cols": 6, "horizon": 4}


def episode(*actions: Any, **fields: Any) -> dict[str, Any]:
    """Return an episode of Sokoban with one action per turn."""
    turns = [{"actions": action if isinstance(action, list) else [action]} for action in actions]
    base = {"format": "pivot-episode-1", "env": "sokoban", "env_config": SETTINGS, "initial_state": LEVEL}
    return {**base, "turns": turns, **fields}


def write_lines(folder: Path, *episodes: Any) -> Path:
    """Write episodes as one file; a text or bytes are written as they are."""
    write_jsonl(folder / "episodes.jsonl", *episodes)
    return folder


def write_jsonl(path: Path, *rows: Any) -> Path:
    """Write lines of JSON; bytes are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in rows]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def lines_of_store(root: Path, folder: Path, per_turn: int = 1) -> Path:
    """Write all episodes of a store, with their pictures, grouping ``per_turn`` steps in a turn."""
    frames = pivot.load_store(root)
    (folder / "frames").mkdir(parents=True, exist_ok=True)
    for row in frames.frames.collect().to_dicts():
        (folder / "frames" / f"{row['frame_id']}.png").write_bytes(encode_png(decode(row["image"])))
    steps = frames.steps.collect().partition_by("episode_id", as_dict=True)
    lines = []
    for row in frames.episodes.collect().to_dicts():
        mine = steps[row["episode_id"],].sort("t").to_dicts()
        groups = [mine[start : start + per_turn] for start in range(0, len(mine), per_turn)]
        names = ("env", "seed", "task_id", "goal_idx", "eval_set", "initial_state", "instruction", "success")
        line = {"format": "pivot-episode-1", "id": row["episode_id"], **{name: row[name] for name in names}}
        line |= {"env_config": json.loads(row["env_config"]), "actions_per_turn": per_turn}
        line |= {"turns": [_turn(group) for group in groups], "truncated": row["stop_reason"] == "horizon"}
        line |= {"final_frame": f"frames/{mine[-1]['next_frame_id']}.png", "terminated": not line["truncated"]}
        lines.append(line)
    return write_lines(folder, *lines)


def _turn(group: list[dict[str, Any]]) -> dict[str, Any]:
    first = group[0]
    turn = {"frame": f"frames/{first['frame_id']}.png", "response": first["response"], "state": first["state"]}
    return turn | {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Now:"}, {"type": "image"}]}],
        "actions": [{"name": step["action"], "payload": step["payload"]} for step in group],
        "action_valid": first["action_valid"] if len(group) == 1 else None,
        "reward": sum(step["reward"] for step in group),
    }


def imports_of(root: Path) -> list[dict[str, Any]]:
    """Return the rows of the imports table."""
    return pl.read_parquet(f"{root}/imports/**/*.parquet").to_dicts()
