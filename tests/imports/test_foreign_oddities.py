"""Hand-written logs of Harbor, verl and EmbodiedBench from their public descriptions, with deliberate oddities."""

import json
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.errors import ConfigError
from pivot.images import encode_png
from pivot.tests.stores import problems

from .recorded import LEVEL, SETTINGS, imports_of

LAKE = "SFFF\nFHFH\nFFFH\nHFFG"


def _frames(env: Any, level: str, moves: list[str], folder: Path, names: list[str] | None = None) -> None:
    """Write the pictures of an episode of single moves."""
    folder.mkdir(parents=True, exist_ok=True)
    frame, _ = env.reset(options={"state": level})
    frames = [frame, *(env.step(env.encode_action(move))[0] for move in moves)]
    for name, each in zip(names or [f"{number}.png" for number in range(len(frames))], frames, strict=True):
        (folder / name).write_bytes(encode_png(each))


# Harbor


def _trajectory(moves: list[Any], **fields: Any) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "system", "message": "Play."}]
    steps.append({"step_id": 2, "source": "user", "message": "Go."})
    for number, move in enumerate(moves):
        call = {"tool_call_id": str(number), "function_name": "move", "arguments": {"direction": move}}
        observation = {"results": [{"source_call_id": str(number), "content": "moved"}]}
        step = {"step_id": number + 3, "source": "agent", "message": "", "tool_calls": [call]}
        steps.append({**step, "observation": observation})
    extra = {"env": "sokoban", "env_config": SETTINGS, "initial_state": LEVEL}
    return {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "a", "version": "1"},
        "steps": steps,
        "extra": extra,
        **fields,
    }


def test_trajectories_may_begin_with_the_mark_of_utf8(tmp_path: Path) -> None:
    rewards = {"verifier_result": {"rewards": {"reward": 0.0}}}
    for name, content in (("trajectory.json", _trajectory(["up"] * 4)), ("result.json", rewards)):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8-sig")
    result = pivot.import_rollouts(tmp_path / "trajectory.json", tmp_path / "store", format="atif")
    assert result.problems == [] and imports_of(tmp_path / "store")[0]["recorded_success"] is False


def test_oddities_of_trajectories(tmp_path: Path) -> None:
    source = tmp_path / "job"
    lost = ["up", "up", "up", "up"]
    named = _trajectory(lost)
    for step in named["steps"][2:]:
        step["tool_calls"] = [{"function_name": "up", "arguments": {}}]  # the tool is the action
    spoken = _trajectory(lost)
    for step in spoken["steps"][2:]:
        step |= {"message": "<think>a</think><action>up</action>", "tool_calls": None, "observation": None}
    idle = _trajectory(["up", "jump", "", "up"])
    copied = _trajectory(["left", *lost])
    copied["steps"][2]["is_copied_context"] = True
    outside = _trajectory(lost)
    outside["steps"][1]["message"] = [
        {"type": "image", "source": {"media_type": "image/png", "path": "../../../x.png"}}
    ]
    web = _trajectory(lost)
    web["steps"][1]["message"] = [{"type": "image", "source": {"media_type": "image/png", "path": "https://x/y.png"}}]
    cases: dict[str, tuple[Any, str | None]] = {
        "plain": (_trajectory(lost), None),
        "tool is the action": (named, None),
        "no tools": (spoken, None),
        "unusable calls": (idle, None),
        "copied context": (copied, None),
        "continued": (_trajectory(lost[:2], continued_trajectory_ref="trajectory.cont-1.json"), None),
        "unknown fields": (_trajectory(lost, mystery={"a": 1}, notes="n"), None),
        "old version": (_trajectory(lost, schema_version="ATIF-v1.0"), None),
        "future version": (_trajectory(lost, schema_version="ATIF-v2.0"), "unreadable"),
        "renamed key": (_trajectory(lost) | {"steps": None, "events": []}, "unreadable"),
        "nobody acts": (_trajectory([]), "unreadable"),
        "no environment": (_trajectory(lost, extra=None), "environment"),
        "torn": (json.dumps(_trajectory(lost))[:-40], "unreadable"),
        "picture outside": (outside, "unreadable"),
        "picture from a server": (web, "unreadable"),
    }
    for name, (trajectory, _) in cases.items():
        folder = source / name / "agent"
        folder.mkdir(parents=True)
        text = trajectory if isinstance(trajectory, str) else json.dumps(trajectory)
        (folder / "trajectory.json").write_text(text)
    (source / "plain" / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 0.0}}}')
    (source / "old version" / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
    cases["old version"] = (None, "disagrees")
    options = {"evidence": "declared"}  # a success that does not replay takes back what the words have earned
    result = pivot.import_rollouts(source, tmp_path / "store", format="atif", options=options)
    lost_ones = {each.place.partition("/")[0]: str(each.kind) for each in result.problems}
    assert lost_ones == {name: kind for name, (_, kind) in cases.items() if kind}
    rows = {row["place"].partition("/")[0]: row for row in imports_of(tmp_path / "store")}
    store = pivot.load_store(tmp_path / "store")
    actions = {row["episode_id"]: row["actions"] for row in store.episodes.collect().to_dicts()}
    assert actions[rows["unusable calls"]["episode_id"]] == ["up", "invalid", "invalid", "up"]
    assert actions[rows["copied context"]["episode_id"]] == lost
    assert rows["plain"]["recorded_success"] is False
    assert json.loads(rows["unknown fields"]["other"])["atif"]["mystery"] == {"a": 1}
    expected = pivot.certify("sokoban", LEVEL, lost, 4).pivot_step
    labels = {row["episode_id"]: row["pivot_step"] for row in store.labels.collect().to_dicts()}
    assert [labels.get(rows[name]["episode_id"]) for name in ("plain", "no tools", "continued")] == [
        expected,
        expected,
        None,
    ]
    assert problems(tmp_path / "store") == []


# verl


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
        ({"input": head, "output": output, **base}, None),  # its last pictures are missing
        ({"input": head, "output": output, **base}, "no_state"),  # it has no pictures at all
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
    with pytest.raises(ConfigError, match=r"holds no STEP\.jsonl"):
        pivot.import_rollouts(tmp_path / "dump" / "image_3", tmp_path / "other", format="verl")


def test_the_level_of_a_dump_is_what_the_agent_was_given(tmp_path: Path) -> None:
    """A board at the very beginning of a message is whole, and one in a reply is none."""
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
    env = SokobanEnv(SokobanConfig(rows=4, cols=6))
    _frames(env, LEVEL, moves[:2], source / "image_1" / "images_0")
    options = {"env": "sokoban", "tag": "answer", "separator": ",", "actions_per_turn": 2}
    settings = {"sokoban": {"rows": 4, "cols": 6, "horizon": 3}}
    result = pivot.import_rollouts(source, tmp_path / "store", format="verl", options=options, settings=settings)
    assert result.problems == []
    store = pivot.load_store(tmp_path / "store")
    assert store.episodes.collect()["actions"].to_list() == [["up|left", "invalid", "up"]]
    expected = pivot.certify("sokoban", LEVEL, ["up|left", "invalid", "up"], 3, actions_per_turn=2)
    assert store.labels.collect()["pivot_step"].to_list() == [expected.pivot_step]


# EmbodiedBench


def _steps(distances: list[float], actions: list[Any], **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "action_description": "…",
            "distance": distance,
            "env_feedback": "…",
            "reasoning": {"language_plan": "go"},
            "instruction": "navigate to the Bread",
            "env_step": number,
            "episode_elapsed_seconds": 1.0,
            "task_success": 0.0,
            "last_action_success": True,
            "action_id": action,
            **fields,
        }
        for number, (distance, action) in enumerate(zip(distances, actions, strict=True), 1)
    ]


def _log(path: Path, *steps: dict[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in steps]
    path.write_text("\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


def test_oddities_of_navigation_logs(tmp_path: Path) -> None:
    source = tmp_path / "base"
    far = [4.0] * 20
    over = _steps([*far, 4.0], [4] * 21)  # step 21 does nothing and ends the episode
    won = _steps([1.5, 1.25, 1.0], [0, 0, 0])
    won[-1]["task_success"] = 1.0
    _log(source / "episode_1.json", *_steps(far, [4] * 20))
    _log(source / "episode_2.json", *over)
    _log(source / "episode_3.json", *won)
    _log(source / "episode_4.json", *_steps([3.0, 3.0], [0, -1]))  # an unusable action ends it
    _log(source / "episode_5.json", *_steps([3.0, 2.75], [0, 0]))  # the log stops
    _log(source / "episode_6.json", *_steps(far, [4] * 20), *_steps([3.0], [0]))  # a second evaluation
    renamed = [{("dist" if name == "distance" else name): value for name, value in step.items()} for step in over]
    _log(source / "episode_7.json", *renamed)
    _log(source / "episode_8.json", *_steps(far, [4] * 20)[:-1], '{"distance": 4.0, "acti')
    _log(source / "episode_9.json", *_steps([4.0, -1.0], [4, 4]))
    (source / "results").mkdir()
    (source / "results" / "episode_1_final_res.json").write_text("{}")
    frame = encode_png(FrozenLakeEnv().reset(seed=1)[0])
    for step in (0, 1, 2, 2):
        (source / f"episode_4_step_{step}_2026_front.png").write_bytes(frame)
    (source / "episode_4_step_2_2027_front.png").write_bytes(frame)  # two pictures of one step
    result = pivot.import_rollouts(source, tmp_path / "store", format="embodiedbench")
    folder = result.stateless
    assert result.build is None and folder is not None
    lost = {each.place: str(each.kind) for each in result.problems if not each.kept}
    assert lost == {f"episode_{number}.json": "unreadable" for number in (7, 8, 9)}
    episodes = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    assert [each["id"] for each in episodes] == [
        *(f"episode_{number}.json" for number in range(1, 6)),
        "episode_6.json run 1",
        "episode_6.json run 2",
    ]
    assert [len(each["turns"]) for each in episodes] == [20, 20, 3, 2, 2, 20, 1]
    assert [each.get("success") for each in episodes] == [False, False, True, False, None, False, None]
    assert ["frame" in turn for turn in episodes[3]["turns"]] == [True, True] and "final_frame" not in episodes[3]
    labels = {row["line"]: row for row in map(json.loads, (folder / "labels.jsonl").read_text().splitlines())}
    assert sorted(labels) == [1, 2, 4, 6] and result.stateless_labels == 4
    # From 4 m, 10 movements of 0.3 m are needed to come within 1 m: one too many after step 10 of 20.
    assert labels[1]["pivot_step"] == labels[2]["pivot_step"] == labels[6]["pivot_step"] == 10
    settings = labels[1]["by"]["settings"]
    assert (settings["step"], settings["threshold"], labels[1]["kind"]) == (0.3, 1.0, "lower_bound")
    reasons = {row["line"]: row["reason"] for row in map(json.loads, (folder / "unlabelled.jsonl").open())}
    assert sorted(reasons) == [3, 5, 7] and labels.keys().isdisjoint(reasons)
    assert reasons[3] == "it reached the goal" and reasons[5] == reasons[7] == "the log does not say how it ended"
    assert labels[4]["failure_mode"] == "format" and labels[4]["pivot_step"] == 1
    with pytest.raises(ConfigError, match="holds no episode_N"):
        pivot.import_rollouts(source / "results", tmp_path / "other", format="embodiedbench")


def test_settings_of_navigation_logs(tmp_path: Path) -> None:
    """Every setting of the dialect decides a label, or that there is none."""
    _log(tmp_path / "a" / "episode_1.json", *_steps([2.75] * 20, [4] * 20))
    _log(tmp_path / "a" / "episode_2.json", *_steps([2.75] * 5 + [2.45] * 15, [0] * 20))

    def made(name: str, **options: float) -> tuple[list[int], list[str]]:
        out = tmp_path / name
        pivot.import_rollouts(tmp_path / "a", out, format="embodiedbench", options=options)
        folder = out.with_name(f"{name}-stateless")
        rows = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
        reasons = [json.loads(line)["reason"] for line in (folder / "unlabelled.jsonl").read_text().splitlines()]
        return [row["pivot_step"] for row in rows], reasons

    assert made("plain") == ([14, 15], [])  # 6 movements from 2.75 m, 5 from 2.45 m
    assert made("reach", success_distance=1.5) == ([15, 16], [])
    short, reasons = made("short", step=0.25)
    assert short == [13] and "changes by 0.300 m in turn 5" in reasons[0]  # AI2-THOR's grid makes longer movements
    assert made("horizon", horizon=10) == ([4, 4], [])
    assert made("starts", nearest_start=2.5, farthest_start=3.0) == ([14, 15], [])
    far, reasons = made("far", nearest_start=3.5)
    assert far == [] and all("starts are from 3.5" in reason for reason in reasons) and len(reasons) == 2
    assert len(made("near", farthest_start=2.0)[1]) == 2
    with pytest.raises(ConfigError, match="nearest_start=3"):
        made("none", nearest_start=3.0, farthest_start=2.0)
