"""Chats of OpenAI's format and traces of verifiers: round trips, and hand-written logs with oddities."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.tests.stores import build_tiny, problems

from .recorded import imports_of

LABEL = ("pivot_step", "failure_mode", "certificate", "witness", "feasible_actions", "accepted", "proved")
ALL = ["end", "states", "rewards", "frames"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("built") / "store", "frozenlake", "sokoban")


def _episodes(root: Path, folder: Path) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return episodes with their steps, and write their pictures."""
    frames = pivot.load_store(root)
    (folder / "pictures").mkdir(parents=True)
    for row in frames.frames.collect().to_dicts():
        (folder / "pictures" / f"{row['frame_id']}.png").write_bytes(row["image"])
    steps = frames.steps.collect().partition_by("episode_id", as_dict=True)
    rows = frames.episodes.collect().to_dicts()
    return [(row, steps[row["episode_id"],].sort("t").to_dicts()) for row in rows]


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    names = ("env", "initial_state", "instruction", "success")
    return {**{name: row[name] for name in names}, "env_config": json.loads(row["env_config"])}


def _openai(folder: Path, row: dict[str, Any], steps: list[dict[str, Any]], per_turn: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Play."}]
    images: list[str] = []
    for start in range(0, len(steps), per_turn):
        group = steps[start : start + per_turn]
        images.append(f"pictures/{group[0]['frame_id']}.png")
        messages.append({"role": "user", "content": "Now: <image>"})
        words = ", ".join(step["action"] for step in group)
        said = f"<think>so</think><answer>{words.title()}</answer>"
        messages.append({"role": "assistant", "content": group[0]["response"] if per_turn == 1 else said})
    messages.append({"role": "user", "content": [{"type": "text", "text": "The end."}, {"type": "image"}]})
    images.append(f"pictures/{steps[-1]['next_frame_id']}.png")
    return {"messages": messages, "images": images, "id": row["episode_id"], **_facts(row)}


def _trace(folder: Path, row: dict[str, Any], steps: list[dict[str, Any]], per_turn: int) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for message in _openai(folder, row, steps, per_turn)["messages"]:
        content = message["content"]
        if message["role"] == "user":
            turn = sum(node["message"]["role"] == "user" for node in nodes)
            last = turn * per_turn >= len(steps)
            name = steps[-1]["next_frame_id"] if last else steps[turn * per_turn]["frame_id"]
            data = base64.b64encode((folder / "pictures" / f"{name}.png").read_bytes()).decode()
            url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
            content = [{"type": "text", "text": "Now:"}, url]
        node: dict[str, Any] = {"message": {"role": message["role"], "content": content}}
        if nodes:
            node["parent"] = len(nodes) - 1
        if message["role"] == "assistant":
            node |= {"sampled": True, "token_ids": [1, 2, 3], "mask": [False, True, True], "logprobs": [-0.5, -0.25]}
        nodes.append(node)
    task = {"type": "Grid", "data": _facts(row)}
    return {"id": row["episode_id"], "task": task, "nodes": nodes, "rewards": {"won": {"score": 0.0, "weight": 1.0}}}


@pytest.mark.parametrize("per_turn", [1, 3])
@pytest.mark.parametrize(("name", "form"), [("openai", _openai), ("verifiers", _trace)])
def test_our_episodes_in_this_format_and_back(
    built: Path, tmp_path: Path, name: str, form: Callable[..., dict[str, Any]], per_turn: int
) -> None:
    source = tmp_path / "source"
    # In a turn of several actions, those after a word that is not an action do not run: leave such episodes out.
    played = [
        (row, steps) for row, steps in _episodes(built, source) if per_turn == 1 or "invalid" not in row["actions"]
    ]
    lines = [form(source, row, steps, per_turn) for row, steps in played]
    (source / "traces.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dialect = {"tag": "answer", "separator": ",", "actions_per_turn": per_turn} if per_turn > 1 else {}
    result = pivot.import_rollouts(source, tmp_path / "store", format=name, options=dialect, require=ALL)
    assert result.problems == []
    ids = {row["episode_id"]: row["source_id"] for row in imports_of(tmp_path / "store")}

    def labels(root: Path, names: dict[Any, Any]) -> dict[Any, Any]:
        rows = pivot.load_store(root).labels.collect().to_dicts()
        return {names.get(row["episode_id"], row["episode_id"]): [row[each] for each in LABEL] for row in rows}

    chosen = {row["episode_id"] for row, _ in played}
    old = {name: label for name, label in labels(built, {}).items() if name in chosen}
    assert old and labels(tmp_path / "store", ids) == old
    assert problems(tmp_path / "store") == []
    if name == "verifiers":
        steps = pivot.load_store(tmp_path / "store").steps.collect()
        assert [2, 3] in steps["response_token_ids"].to_list()


def test_oddities_of_chats(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (row, steps), *_ = _episodes(built, source)

    def chat(**changes: Any) -> dict[str, Any]:
        return {**_openai(source, row, steps, 1), **changes}

    whole = chat()
    no_end = chat(messages=whole["messages"][:-1], images=whole["images"][:-1])
    empty = json.loads(json.dumps(whole))
    empty["messages"][2]["content"] = ""
    texts = [
        {"role": each["role"], "content": "no picture"} for each in whole["messages"] if each["role"] != "assistant"
    ]
    lines = [
        (no_end, None),
        (empty, None),
        (chat(images=[{"path": name} for name in whole["images"]]), None),
        (chat(images=whole["images"][:-2]), "unreadable"),
        (chat(images=[*whole["images"], whole["images"][0]]), "unreadable"),
        ({**whole, "conversations": whole["messages"], "messages": None}, "unreadable"),
        (chat(messages=texts, images=[]), "unreadable"),
        (chat(images=["https://example.org/1.png", *whole["images"][1:]]), "unreadable"),
        (chat(images=["../" + name for name in whole["images"]]), "unreadable"),
        (chat(env="chess"), "environment"),
        (chat(env=None), "environment"),
    ]
    text = "".join(json.dumps(line) + "\n" for line, _ in lines)
    (source / "chats.jsonl").write_text(text + json.dumps(whole)[:-300])
    result = pivot.import_rollouts(source / "chats.jsonl", tmp_path / "store", format="openai", require=["frames"])
    found = {problem.place: str(problem.kind) for problem in result.problems}
    assert found.pop(f"chats.jsonl line {len(lines) + 1}") == "unreadable"
    expected = {f"chats.jsonl line {number}": kind for number, (_, kind) in enumerate(lines, 1) if kind}
    # An empty reply takes no step, so that the pictures after it differ where the recorded action moved.
    found.pop("chats.jsonl line 2", None)
    assert found == expected


def test_a_json_list_is_read_and_the_environment_may_be_an_option(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    chats = [_openai(source, row, steps, 1) for row, steps in _episodes(built, source) if row["env"] == "frozenlake"]
    for each in chats:
        del each["env"], each["initial_state"]
    (source / "data.json").write_text(json.dumps(chats))
    result = pivot.import_rollouts(
        source / "data.json", tmp_path / "store", format="openai", options={"env": "frozenlake"}, require=ALL
    )
    assert result.problems == [] and result.episodes == len(chats)
    assert {row["state_source"] for row in imports_of(tmp_path / "store")} == {"picture"}


def test_oddities_of_traces(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (row, steps), *_ = _episodes(built, source)
    trace = _trace(source, row, steps, 1)
    branch = json.loads(json.dumps(trace))
    branch["nodes"].insert(0, {"message": {"role": "user", "content": "an abandoned branch"}})
    for node in branch["nodes"][2:]:
        node["parent"] += 1
    example = json.loads(json.dumps(trace))
    shot = {"message": {"role": "assistant", "content": "<action>up</action>"}, "parent": 0}
    example["nodes"].insert(1, shot)
    for node in example["nodes"][2:]:
        node["parent"] += 1
    cycle = json.loads(json.dumps(trace))
    cycle["nodes"][0]["parent"] = 3
    bomb = json.loads(json.dumps(trace))
    bomb["nodes"][1]["message"]["content"][1]["image_url"]["url"] = "data:image/png;base64," + "A" * (23 << 20)
    file = json.loads(json.dumps(trace))
    file["nodes"][1]["message"]["content"][1]["image_url"]["url"] = "file:///etc/passwd"
    no_nodes = {**trace, "nodes": []}
    lines = [trace, branch, example, cycle, bomb, file, no_nodes]
    (source / "traces.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = pivot.import_rollouts(source, tmp_path / "store", format="verifiers", require=["frames"])
    assert [problem.place for problem in result.problems] == [f"traces.jsonl line {number}" for number in (4, 5, 6, 7)]
    assert {str(problem.kind) for problem in result.problems} == {"unreadable"}
    assert result.episodes == 3
