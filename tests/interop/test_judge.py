"""Pairs and corrections of imports and of own stores, judged by a program that shares no code with the product."""

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.core.errors import ConfigError
from pivot.core.images import encode_png
from pivot.tests.stores import problems

from . import formats
from .dialects import HORIZON, LEVELS, REPLIES, make_env
from .formats import Chat
from .judge import MOVES, Played, complaints, pixels, shown
from .recorded import episode, imports_of, write_lines

FORMS = {
    "answer": r"<think>.+</think><answer>(\w+)</answer>",
    "react": r"Thought: .+\nAction: (\w+)",
    "json": r'\{"thought": ".+", "move": "(\w+)"\}',
    "tool": r'move \{"direction": "(\w+)"\}',
    "open thought": r"<think>.+ <action>(\w+)</action>",
    "boxed": r".+ \\boxed\{(\w+)\}",
}
"""Whole replies of each form of ``REPLIES``."""


def played(chat: Chat) -> Played:
    """Return an episode in the form that the judge takes."""
    pictures = iter([pixels((chat.folder / name).read_bytes()) for name in chat.pictures])
    whole = [shown(message, pictures) for message in chat.messages]
    turns = [index for index, message in enumerate(chat.messages) if message["role"] == "assistant"]
    sent = {t: whole[:index] for t, index in enumerate(turns)}
    replies = {t: whole[index] for t, index in enumerate(turns)}
    return Played(chat.facts["env"], chat.facts["initial_state"], HORIZON, chat.actions, sent, replies)


def play(folder: Path, env: str, form: str, *, legend: bool, count: int = 6) -> list[Chat]:
    """Play episodes at random, with unusable replies, and if asked for a second picture in the first message."""
    rng, chats = random.Random(f"{env} {form}"), list[Chat]()
    for number in range(count):
        level = LEVELS[env][number % 2 if env == "frozenlake" else 0]
        game = make_env(env, level)
        frame, _ = game.reset(options={"state": level})
        facts = {"env": env, "env_config": game.config.decisive(), "initial_state": level}
        chat, over, success = Chat(f"e{number}", facts, folder), False, False
        text = [{"type": "text", "text": "Play. First a picture of the legend, then the level:"}]
        chat.messages.append({"role": "system", "content": [{"type": "text", "text": "You play."}]})
        (folder / "legend.png").write_bytes(encode_png(frame[::-1].copy()))
        while not over:
            name = f"{number}-{len(chat.actions)}.png"
            (folder / name).write_bytes(encode_png(frame))
            first = [*text, {"type": "image", "image": "legend.png"}] if legend and not chat.actions else []
            now = {"type": "text", "text": f"Turn {len(chat.actions)}:"}
            chat.messages.append({"role": "user", "content": [*first, now, {"type": "image", "image": name}]})
            action = rng.choice([*MOVES, "jump"]) if chat.actions else rng.choice([*MOVES])
            said = REPLIES[form](action)
            said = said if isinstance(said, dict) else {"content": [{"type": "text", "text": said}]}
            chat.messages.append({"role": "assistant", **said, "content": said["content"] or []})
            frame, _, terminated, truncated, info = game.step(
                game.encode_action("invalid" if action == "jump" else action)
            )
            chat.actions.append(action)
            chat.infos.append({"actions": [action], "success": bool(info["success"]), "terminated": terminated})
            over, success = terminated or truncated, bool(info["success"])
        facts["success"] = success
        chats.append(chat)
    return chats


def write_parts(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    write_lines(folder, *({"messages": chat.messages, "id": chat.name, **chat.facts} for chat in chats))
    return {"source": folder / "episodes.jsonl", "format": "openai"}


def write_own(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    lines = []
    for chat in chats:
        turns = [index for index, message in enumerate(chat.messages) if message["role"] == "assistant"]
        said = [chat.messages[index]["content"][0]["text"] for index in turns]
        frames = [chat.messages[index - 1]["content"][-1]["image"] for index in turns]
        recorded = [
            {"frame": frame, "response": text, "messages": chat.messages[:index]}
            for index, text, frame in zip(turns, said, frames, strict=True)
        ]
        lines.append({"format": "pivot-episode-1", "id": chat.name, "turns": recorded, **chat.facts})
    write_lines(folder, *lines)
    return {"source": folder, "format": "jsonl"}


def write_vagen(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    for number, chat in enumerate(chats):
        own = folder / "tag" / f"FrozenLake_seed_{number}"
        (own / "images").mkdir(parents=True)
        users = [each for each in chat.messages if each["role"] == "user"]
        for turn, message in enumerate(users, 1):
            names = [part["image"] for part in message["content"] if "image" in part]
            for index, name in enumerate(names, 1):
                (own / "images" / f"turn_{turn:02d}_{index:02d}.png").write_bytes((folder / name).read_bytes())
        hidden = chat.with_pictures(lambda _: {"type": "image_url", "image_url": {"url": "<data_url>"}})
        (own / "messages.json").write_text(json.dumps(hidden))
        replies = [each["content"][0]["text"] for each in chat.messages if each["role"] == "assistant"]
        infos = [
            {"actions": each["actions"], "format_correct": "jump" not in each["actions"], "llm_raw_response": reply}
            for each, reply in zip(chat.infos, replies, strict=True)
        ]
        metrics = {
            **{"rollout_id": chat.name, "env_name": "FrozenLake", "model": "m", "max_turns": HORIZON, "seed": 1},
            "env_config": {
                "max_actions_per_step": 1,
                "desc": chat.facts["initial_state"].split("\n"),
                "format_reward": 0.0,
            },
            "rewards": [float(each["success"]) for each in chat.infos],
            "infos": [{}, *infos],
            "success": chat.facts["success"],
            "terminated": chat.infos[-1]["terminated"],
            "finish_reason": "done" if chat.infos[-1]["terminated"] else "max_turns",
        }
        (own / "metrics.json").write_text(json.dumps(metrics))
    return {"source": folder, "format": "vagen"}


SOURCES: dict[str, tuple[formats.Writer, str, str]] = {
    "chats with tools": (write_parts, "sokoban", "tool"),
    "chats": (write_parts, "frozenlake", "react"),
    "own": (write_own, "sokoban", "json"),
    "inspect": (formats.write_inspect, "sokoban", "boxed"),
    "verifiers": (formats.write_old_traces, "frozenlake", "open thought"),
    "verl": (formats.write_verl, "sokoban", "answer"),
    "vagen": (write_vagen, "frozenlake", "answer"),
}


def _rows(root: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(root.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_an_import_are_true_and_in_its_dialect(tmp_path: Path, name: str) -> None:
    """Catch a preferred action that is fatal, a prompt of another turn, or a store that verify contradicts."""
    write, env, form = SOURCES[name]
    folder = tmp_path / "source"
    folder.mkdir()
    chats = play(folder, env, form, legend=name != "vagen")
    options = {} if name == "vagen" else {"dialect": "auto"}
    result = pivot.import_rollouts(**write(folder, chats), out=tmp_path / "store", options=options, require=())
    assert [each.detail for each in result.problems] == []
    assert problems(tmp_path / "store") == []
    by_id = {row["episode_id"]: played(formats.chat_of(row, chats)) for row in imports_of(tmp_path / "store")}
    for kind in ("pairs", "corrections"):
        pivot.export(tmp_path / "store", tmp_path / kind, format=kind, workers=1)
        rows = _rows(tmp_path / kind)
        wrong = [
            f"{row['episode_id']}: {each}"
            for row in rows
            for each in complaints(kind, row, by_id[row["episode_id"]], FORMS[form], str)
        ]
        assert len(rows) >= 3 and wrong == []


def test_actions_without_replies_are_written_on_both_sides(tmp_path: Path) -> None:
    recorded = [episode(*actions, success=False) for actions in (["down", "right", "right", "up"], ["left"] * 4)]
    for each in recorded:
        for turn in each["turns"]:
            turn["messages"] = [{"role": "user", "content": "Which way?"}]
    pivot.import_rollouts(
        write_lines(tmp_path / "source", *recorded), tmp_path / "store", options={"evidence": "declared"}
    )
    pivot.export(tmp_path / "store", tmp_path / "pairs", format="pairs", workers=1)
    said = [
        [row[side][0]["content"][0]["text"] for side in ("chosen", "rejected")] for row in _rows(tmp_path / "pairs")
    ]
    assert said and all(re.fullmatch(r"<action>\w+</action>", text) for pair in said for text in pair)


def test_an_import_without_prompts_has_no_pairs(tmp_path: Path) -> None:
    recorded = episode("down", "right", "right", "up", success=False)
    pivot.import_rollouts(
        write_lines(tmp_path / "source", recorded), tmp_path / "store", options={"evidence": "declared"}
    )
    for kind in ("pairs", "corrections", "privileged"):
        with pytest.raises(ConfigError, match=r"without prompts.*Recorder\.note\(messages="):
            pivot.export(tmp_path / "store", tmp_path / kind, format=kind, workers=1)


def test_rows_of_an_own_store_are_true(small_store: Path, tmp_path: Path) -> None:
    frames = pivot.load_store(small_store)
    episodes = {row["episode_id"]: row for row in frames.episodes.collect().to_dicts()}
    prompts = {row["prompt_hash"]: json.loads(row["messages"]) for row in frames.prompts.collect().to_dicts()}
    pictures = {row["frame_id"]: pixels(row["image"]) for row in frames.frames.collect().to_dicts()}
    steps = {(row["episode_id"], row["t"]): row for row in frames.steps.collect().to_dicts()}
    for kind in ("pairs", "corrections"):
        pivot.export(small_store, tmp_path / kind, format=kind, workers=1, environments=["sokoban", "frozenlake"])
        plans: dict[str, list[str]] = {}
        rows = _rows(tmp_path / kind)
        for row in rows:
            name, pivot_step = row["episode_id"], row["pivot_step"]
            step, taken = steps[name, pivot_step], plans.setdefault(name, [])
            shown_pictures = iter([pictures[part["frame_id"]] for message in prompts[step["prompt_hash"]]
                                   for part in message["content"] if part["type"] == "image"])  # fmt: skip
            sent = [shown(message, shown_pictures) for message in prompts[step["prompt_hash"]]]
            said = {
                pivot_step: shown(
                    {"role": "assistant", "content": [{"type": "text", "text": step["response"]}]}, iter(())
                )
            }
            row_of = episodes[name]
            judged = Played(row_of["env"], row_of["initial_state"], row_of["horizon"],
                            [*row_of["actions"][:pivot_step], *taken], {pivot_step: sent}, said)  # fmt: skip
            form = r"(?:.*</think>)?+(?:(?!<action>).)*<action>\s*(\w+)\s*</action>.*|.*"
            assert [*complaints(kind, row, judged, form, lambda word: str(word).lower())] == []
            taken += [row["action"]] if kind == "corrections" else []
        assert len(rows) > 10
