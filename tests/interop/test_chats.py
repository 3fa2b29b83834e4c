"""Chats of OpenAI's format and traces of verifiers: hand-written logs with oddities."""

import copy
import json
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import ConfigError
from pivot.interop.base import UnreadableError
from pivot.interop.chat import ChatSettings, Message, episode_of, message_of
from pivot.interop.openai import OpenAIImporter
from pivot.tests.stores import build_tiny

from .formats import chats_of, openai_row, trace_line
from .recorded import imports_of, write_jsonl

ALL = ["end", "states", "rewards", "frames"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("built") / "store", "frozenlake", "sokoban")


def _copy(trace: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a copy of a trace and its nodes."""
    made = copy.deepcopy(trace)
    return made, made["nodes"]


def test_oddities_of_chats(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    episode, *_ = chats_of(built, source)

    def chat(**changes: Any) -> dict[str, Any]:
        return {**openai_row(episode), **changes}

    whole = chat()
    no_end = chat(messages=whole["messages"][:-1], images=whole["images"][:-1])
    empty = copy.deepcopy(whole)
    empty["messages"][2]["content"] = ""
    texts = [each | {"content": "no picture"} for each in whole["messages"] if each["role"] != "assistant"]
    lines = [
        (no_end, None),
        (empty, None),
        (chat(images=[{"path": name} for name in whole["images"]]), None),
        (chat(images=whole["images"][:-2]), "unreadable"),
        (chat(images=[*whole["images"], whole["images"][0]]), "unreadable"),
        ({**whole, "dialogue": whole["messages"], "messages": None}, "unreadable"),
        (chat(messages=texts, images=[]), "unreadable"),
        (chat(images=["https://example.org/1.png", *whole["images"][1:]]), "unreadable"),
        (chat(images=["../" + name for name in whole["images"]]), "unreadable"),
        (chat(env="chess"), "environment"),
        (chat(env=None), "environment"),
    ]
    write_jsonl(source / "chats.jsonl", *(line for line, _ in lines), json.dumps(whole)[:-300].encode())
    result = pivot.import_rollouts(source / "chats.jsonl", tmp_path / "store", format="openai", require=["frames"])
    kinds = {problem.place: str(problem.kind) for problem in result.problems}
    assert kinds.pop(f"chats.jsonl line {len(lines) + 1}") == "unreadable"
    expected = {f"chats.jsonl line {number}": kind for number, (_, kind) in enumerate(lines, 1) if kind}
    # An empty reply takes no step, so that the pictures after it differ where the recorded action moved.
    kinds.pop("chats.jsonl line 2", None)
    assert kinds == expected


def test_a_json_list_is_read_and_the_environment_may_be_an_option(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    chats = [openai_row(each) for each in chats_of(built, source) if each.facts["env"] == "frozenlake"]
    for each in chats:
        del each["env"], each["initial_state"]
    (source / "data.json").write_text(json.dumps(chats))
    options, out = {"env": "frozenlake"}, tmp_path / "store"
    result = pivot.import_rollouts(source / "data.json", out, format="openai", options=options, require=ALL)
    assert result.problems == [] and result.episodes == len(chats)
    assert {row["state_source"] for row in imports_of(tmp_path / "store")} == {"picture"}


def test_a_bad_row_or_file_of_lists_is_left_out_alone(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    episode, *_ = chats_of(built, source)
    good = openai_row(episode)
    (source / "a.json").write_text(json.dumps([good, None, good]))
    (source / "config.json").write_text('{"model": "tiny"}')
    result = pivot.import_rollouts(source, tmp_path / "store", format="openai")
    assert [problem.place for problem in result.problems] == ["a.json row 1", "a.json row 2", "config.json"]
    assert "found a row of type NoneType" in result.problems[0].detail and result.episodes == result.repeated == 1
    with pytest.raises(ConfigError, match="not a JSON list"):
        pivot.import_rollouts(source / "config.json", tmp_path / "other", format="openai")


def test_ids_may_be_integers_and_files_may_begin_with_the_mark_of_utf8(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    episode, *_ = chats_of(built, source)
    chat, trace = openai_row(episode) | {"id": 7}, trace_line(episode) | {"id": 7}
    files = {"openai": ("chats.json", [chat]), "verifiers": ("traces.jsonl", trace)}
    for format, (name, content) in files.items():
        (source / name).write_text(json.dumps(content), encoding="utf-8-sig")
        result = pivot.import_rollouts(source / name, tmp_path / format, format=format)
        assert result.problems == []
        assert [each["source_id"] for each in imports_of(tmp_path / format)] == ["7"]


def test_a_text_behind_a_picture_leaves_it_to_the_turn() -> None:
    board, order = Message("user", "You are in this room.", ["room.png"]), Message("user", "Reply with one action.")
    read = episode_of([board, order, Message("assistant", "<action>up</action>")], {}, ChatSettings(env="sokoban"))
    assert [turn.frame for turn in read.turns] == ["room.png"]
    lost = message_of({"role": "user", "content": [{"type": "image"}]}, [])
    assert (lost.images, lost.parts) == ([], [{"type": "image", "image": ""}])  # the prompt is not whole


def test_calls_of_tools_are_a_list(built: Path, tmp_path: Path) -> None:
    source, wrong = tmp_path / "source", (7, "abc", {"a": 1})
    episode, *_ = chats_of(built, source)
    chats, traces = ([make(episode) for _ in range(4)] for make in (openai_row, trace_line))
    for chat, trace, calls in zip(chats[1:], traces[1:], wrong, strict=True):
        chat["messages"][2]["tool_calls"] = trace["nodes"][2]["message"]["tool_calls"] = calls
    write_jsonl(source / "chats.jsonl", *chats)
    write_jsonl(source / "run" / "traces.jsonl", *traces)
    for name, format in (("chats.jsonl", "openai"), ("run/traces.jsonl", "verifiers")):
        result = pivot.import_rollouts(source / name, tmp_path / format, format=format)
        assert result.episodes == 1
        for line, (problem, calls) in enumerate(zip(result.problems, wrong, strict=True), 2):
            assert problem.place == f"{Path(name).name} line {line}"
            assert f"tool_calls of type {type(calls).__name__}" in problem.detail


def test_oddities_of_traces(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    episode, *_ = chats_of(built, source)
    trace = trace_line(episode)
    branch, branched = _copy(trace)
    branched.insert(0, {"message": {"role": "user", "content": "an abandoned branch"}})
    example, shown = _copy(trace)
    shown.insert(1, {"message": {"role": "assistant", "content": "<action>up</action>"}, "parent": 0})
    for node in [*branched[2:], *shown[2:]]:
        node["parent"] += 1
    cycle, turned = _copy(trace)
    turned[0]["parent"] = 3
    lines = [trace, branch, example, cycle]
    for url in ("data:image/png;base64," + "A" * (23 << 20), "file:///etc/passwd"):
        made, nodes = _copy(trace)
        nodes[1]["message"]["content"][1]["image_url"]["url"] = url
        lines.append(made)
    lines = [{**line, "id": f"line-{number}"} for number, line in enumerate([*lines, {**trace, "nodes": []}])]
    write_jsonl(source / "traces.jsonl", *lines)
    result = pivot.import_rollouts(source, tmp_path / "store", format="verifiers", require=["frames"])
    assert [problem.place for problem in result.problems] == [f"traces.jsonl line {number}" for number in (4, 5, 6, 7)]
    assert {str(problem.kind) for problem in result.problems} == {"unreadable"} and result.episodes == 3


def test_turns_and_pictures_that_traces_lack(built: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    lost = [each for each in chats_of(built, source) if not each.facts["success"]]
    episode = next(each for each in lost if each.facts["env"] == "sokoban")
    trace = trace_line(episode)

    def changed(change: Any) -> dict[str, Any]:
        made, nodes = _copy(trace)
        change(nodes)
        return made

    def texts_alone(nodes: list[Any]) -> None:
        for node in nodes:
            if node["message"]["role"] == "user":
                node["message"]["content"] = "no picture"

    def twice(nodes: list[Any]) -> None:
        content = nodes[1]["message"]["content"]
        content.append(content[1])

    lines = [
        (changed(lambda nodes: nodes.pop()), None),  # no picture after the last reply
        (changed(lambda nodes: nodes[2]["message"].update(content="")), "disagrees"),  # the picture after it moved
        (changed(texts_alone), None),
        (changed(twice), None),
        ({**{name: value for name, value in trace.items() if name != "nodes"}, "steps": trace["nodes"]}, "unreadable"),
        (changed(lambda nodes: [node["message"].update(role="robot") for node in nodes]), "unreadable"),
    ]
    write_jsonl(source / "traces.jsonl", *(line for line, _ in lines), json.dumps(trace)[:-300].encode())
    options = {"evidence": "declared"}  # without these, most have no confirmation
    result = pivot.import_rollouts(source, tmp_path / "store", format="verifiers", options=options)
    kinds = {problem.place: str(problem.kind) for problem in result.problems}
    assert kinds.pop(f"traces.jsonl line {len(lines) + 1}") == "unreadable"
    assert kinds == {f"traces.jsonl line {number}": kind for number, (_, kind) in enumerate(lines, 1) if kind}
    actions = pivot.load_store(tmp_path / "store").episodes.collect()["actions"].to_list()
    assert [each[0] for each in actions].count("invalid") == (3 if episode.actions[0] == "invalid" else 0)
    assert pivot.load_store(tmp_path / "store").labels.collect().height == 3


def test_replies_in_a_prompt_need_an_option(tmp_path: Path) -> None:
    """They may be examples or earlier turns, and a label would depend on the guess."""
    move = {"role": "assistant", "content": "<think></think><action>right</action>"}
    now = {"role": "user", "content": "Now?"}
    row = {"env": "frozenlake", "initial_state": "SFF\nFHF\nFFG", "prompt": [now, move, now], "completion": [move]}
    write_jsonl(tmp_path / "rows.jsonl", row)
    importer = OpenAIImporter()
    (place,) = importer.places(tmp_path / "rows.jsonl")
    with pytest.raises(UnreadableError, match=r"1 replies in the prompt.*examples=0"):
        importer.read(tmp_path / "rows.jsonl", place)
    for examples, turns in ((0, 2), (1, 1)):
        episode = OpenAIImporter(examples=examples).read(tmp_path / "rows.jsonl", place)
        assert len(episode.turns) == turns


def test_calls_of_sharegpt_are_calls_of_tools(tmp_path: Path) -> None:
    said = [
        {"from": "human", "value": "Now?"},
        {"from": "function_call", "value": '{"name": "move", "arguments": {"direction": "right"}}'},
        {"from": "observation", "value": "You moved."},
        {"from": "function_call", "value": "no JSON"},
    ]
    rows = [{"env": "frozenlake", "initial_state": "SFF\nFHF\nFFG", "conversations": said[:count]} for count in (3, 4)]
    write_jsonl(tmp_path / "rows.jsonl", *rows)
    importer = OpenAIImporter()
    good, bad = importer.places(tmp_path / "rows.jsonl")
    assert importer.read(tmp_path / "rows.jsonl", good).turns[0].actions == ["right"]
    with pytest.raises(UnreadableError, match="function_call 'no JSON'"):
        importer.read(tmp_path / "rows.jsonl", bad)
