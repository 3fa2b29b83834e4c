"""Hand-written dumps of verl from its public description, with deliberate oddities."""

import json
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.core.errors import ConfigError
from pivot.core.images import encode_png
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.tests.stores import problems

from .recorded import LEVEL, imports_of

LAKE = "SFFF\nFHFH\nFFFH\nHFFG"


def _frames(env: Any, level: str, moves: list[str], folder: Path, names: list[str] | None = None) -> None:
    """Write the pictures of an episode of single moves."""
    folder.mkdir(parents=True, exist_ok=True)
    frame, _ = env.reset(options={"state": level})
    frames = [frame, *(env.step(env.encode_action(move))[0] for move in moves)]
    for name, each in zip(names or [f"{number}.png" for number in range(len(frames))], frames, strict=True):
        (folder / name).write_bytes(encode_png(each))


def _chat(moves: list[str], sight: str = "<|vision_start|><|image_pad|><|vision_end|>") -> tuple[str, str]:
    seen = f"<|im_start|>user\nNow {sight}<|im_end|>\n<|im_start|>assistant\n"
    replies = [f"<think>a</think><action>{move}</action><|im_end|>\n" for move in moves]
    return f"<|im_start|>system\nPlay.<|im_end|>\n{seen}", seen.join(replies)


def _plain(text: str) -> str:
    for mark in ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"):
        text = text.replace(mark, "")
    return text


def test_oddities_of_dumps(tmp_path: Path) -> None:
    source = tmp_path / "dump"
    moves = ["up", "up", "left", "up", "up", "left", "up", "up", "up"]
    head, output = _chat(moves)
    board = " P  _  _  _ \n _  O  _  O \n _  _  _  O \n O  _  _  G \n"
    text_head = head.replace("Now <|vision_start|><|image_pad|><|vision_end|>", f"Now\n{board}")
    base = {"score": 0.1, "gts": None, "step": 3, "traj_success": 0.0}
    cases: list[tuple[Any, str | None]] = [
        ({"input": head, "output": output, **base}, None),
        ({"input": head.replace("<|image_pad|>", "<|image_pad|>" * 99), "output": output, **base}, None),
        ({"input": _plain(text_head), "output": _plain(output), **base}, None),
        ({"input": text_head, "output": _chat(moves, "")[1], **base}, None),
        ({"input": head, "output": output, **base, "traj_success": 1.0}, "disagrees"),
        ({"input": head, "output": output[: len(output) // 2], **base}, None),
        ({"input": head[60:], "output": output, **base}, "no_state"),  # the beginning was cut
        ({"prompt": head, "response": output, **base}, "unreadable"),
        ({"input": head.removesuffix("<|im_start|>assistant\n"), "output": "", **base}, "unreadable"),
        ({"input": text_head, "output": _chat(["up", "", "up", "up", "up", "up", "up", "up", "up"])[1], **base}, None),
        ({"input": head, "output": output, **base}, None),  # the last pictures are missing
        ({"input": head, "output": output, **base}, "no_state"),  # no pictures at all
    ]
    lines = [json.dumps(line) for line, _ in cases]
    source.mkdir()
    (source / "3.jsonl").write_text("\n".join(lines) + '\n{"input": "torn')
    for line in (0, 1, 4, 5, 6, 10):
        _frames(FrozenLakeEnv(FrozenLakeConfig()), LAKE, moves[:-1], source / "image_3" / f"images_{line}")
    for number in (6, 7, 8):
        (source / "image_3" / "images_10" / f"{number}.png").unlink()
    options = {"env": "frozenlake", "evidence": "declared"}
    result = pivot.import_rollouts(
        source, tmp_path / "store", format="verl", options=options, require=["end", "frames"]
    )
    named = {int(each.place.rpartition(" ")[2]): str(each.kind) for each in result.problems}
    assert named == {number: kind for number, (_, kind) in enumerate(cases, 1) if kind} | {len(cases) + 1: "unreadable"}
    rows = {row["place"]: row for row in imports_of(tmp_path / "store")}
    assert rows["3.jsonl line 1"]["frames_agree"] and rows["3.jsonl line 1"]["state_source"] == "picture"
    assert rows["3.jsonl line 3"]["state_source"] == "row" and '"score":0.1' in rows["3.jsonl line 3"]["other"]
    store = pivot.load_store(tmp_path / "store")
    labels = {row["episode_id"]: row["pivot_step"] for row in store.labels.collect().to_dicts()}
    expected = pivot.certify("frozenlake", LAKE, moves, 9).pivot_step
    assert {labels.get(rows[f"3.jsonl line {line}"]["episode_id"]) for line in (1, 2, 3, 4, 11)} == {expected}
    status = store.episodes.filter(pl.col("episode_id") == rows["3.jsonl line 6"]["episode_id"]).collect()["status"]
    assert status.to_list() == ["truncated"]
    assert problems(tmp_path / "store") == []
    with pytest.raises(ConfigError, match=r"holds no \*\.jsonl"):
        pivot.import_rollouts(tmp_path / "dump" / "image_3", tmp_path / "other", format="verl")


def test_the_level_of_a_dump_is_what_the_agent_was_given(tmp_path: Path) -> None:
    """A board at the start of a message counts, and one in a reply does not."""
    source = tmp_path / "dump"
    source.mkdir()
    moves = ["up", "left"]
    head, output = _chat(moves)
    board, other = (
        " _  _  _  _ \n P  O  _  O \n _  _  _  O \n O  _  _  G \n",
        " P  O  _  _ \n _  O  _  O \n _  _  _  G \n",
    )
    lake = "FFFF\nSHFH\nFFFH\nHFFG"
    seen = "Now <|vision_start|><|image_pad|><|vision_end|>"
    cases = {
        "alone": (head.replace(seen, board), output, False),
        "trimmed by the template": (head.replace(seen, board.strip()), output, False),
        "after a text": (head.replace(seen, f"Now\n{board}"), output, False),
        "in a reply": (head, output.replace("<think>a", f"<think>\n{other}"), True),
        "text and picture": (head.replace("Now ", f"Now\n{board}"), output, True),
        "two levels": (head.replace("Now ", f"Now\n{other}"), output, True),
    }
    for number, (_, _, has_picture) in enumerate(cases.values()):
        if has_picture:
            _frames(FrozenLakeEnv(FrozenLakeConfig()), lake, moves[:-1], source / "image_1" / f"images_{number}")
    lines = [json.dumps({"input": first, "output": rest, "traj_success": 0.0}) for first, rest, _ in cases.values()]
    (source / "1.jsonl").write_text("\n".join(lines) + "\n")
    settings = {"frozenlake": {"horizon": 2}}
    result = pivot.import_rollouts(
        source, tmp_path / "store", format="verl", options={"env": "frozenlake"}, settings=settings
    )
    assert [(each.place, str(each.kind)) for each in result.problems] == [("1.jsonl line 6", "disagrees")]
    assert "different levels" in result.problems[0].detail
    states = pivot.load_store(tmp_path / "store").episodes.collect()["initial_state"].to_list()
    assert states == [lake] * 5


def test_a_dump_of_sokoban_with_turns_of_several_actions(tmp_path: Path) -> None:
    source = tmp_path / "dump"
    moves = ["up", "left", "up"]
    head, output = _chat(["Up, Left", "jump, up", "Up"])
    output = output.replace("<action>", "<answer>").replace("</action>", "</answer>")
    source.mkdir()
    (source / "1.jsonl").write_text(json.dumps({"input": head, "output": output, "traj_success": 0.0}) + "\n")
    _frames(SokobanEnv(SokobanConfig(rows=4, cols=6)), LEVEL, moves[:2], source / "image_1" / "images_0")
    options = {"env": "sokoban", "tag": "answer", "separator": ",", "actions_per_turn": 2}
    settings = {"sokoban": {"rows": 4, "cols": 6, "horizon": 3}}
    result = pivot.import_rollouts(source, tmp_path / "store", format="verl", options=options, settings=settings)
    assert result.problems == []
    store = pivot.load_store(tmp_path / "store")
    assert store.episodes.collect()["actions"].to_list() == [["up|left", "invalid", "up"]]
    expected = pivot.certify("sokoban", LEVEL, ["up|left", "invalid", "up"], 3, actions_per_turn=2)
    assert store.labels.collect()["pivot_step"].to_list() == [expected.pivot_step]
