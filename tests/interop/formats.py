"""Episodes as chats, and writers of them in the formats of other programs."""

import base64
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pivot
from pivot.core.images import decode, encode_png


@dataclass
class Chat:
    """An episode: its messages, whose pictures are files of a folder, and its facts."""

    name: str
    facts: dict[str, Any]
    """Fields of PIVOT's own format that a row may have."""
    folder: Path
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    actions: list[str] = field(default_factory=list[str])
    infos: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def pictures(self) -> list[str]:
        """Names of the pictures, in the order of the messages."""
        return [part["image"] for each in self.messages for part in each["content"] if "image" in part]

    def with_pictures(self, picture: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages with their pictures in another form."""
        return [
            {**each, "content": [picture(part["image"]) if "image" in part else part for part in each["content"]]}
            for each in self.messages
        ]

    def texts(self, mark: str) -> list[str]:
        """Return the messages as texts with a mark for each picture."""
        return [
            "".join(mark if "image" in part else part["text"] for part in each["content"]) for each in self.messages
        ]

    def url(self, name: str) -> str:
        """Return a picture as a data URL."""
        return "data:image/png;base64," + base64.b64encode((self.folder / name).read_bytes()).decode()


Writer = Callable[[Path, Sequence[Chat]], dict[str, Any]]
"""Writes a source to a folder; returns ``source`` and ``format`` of the import."""


def chats_of(root: Path, folder: Path) -> list[Chat]:
    """Return the episodes of a store, and write their pictures."""
    frames = pivot.load_store(root)
    (folder / "pictures").mkdir(parents=True)
    for row in frames.frames.collect().to_dicts():
        (folder / "pictures" / f"{row['frame_id']}.png").write_bytes(encode_png(decode(row["image"])))
    steps = frames.steps.collect().partition_by("episode_id", as_dict=True)
    chats = []
    for row in frames.episodes.collect().to_dicts():
        mine = steps[row["episode_id"],].sort("t").to_dicts()
        facts = {name: row[name] for name in ("env", "initial_state", "instruction", "success")}
        facts["env_config"] = json.loads(row["env_config"])
        chat = Chat(row["episode_id"], facts, folder, [_message("system", "Play.")], [step["action"] for step in mine])
        for step in mine:
            chat.messages += [_message("user", "Now: ", step["frame_id"]), _message("assistant", step["response"])]
        chat.messages.append(_message("user", "The end.", mine[-1]["next_frame_id"]))
        chats.append(chat)
    return chats


def _message(role: str, text: str, picture: str | None = None) -> dict[str, Any]:
    image = [{"type": "image", "image": f"pictures/{picture}.png"}] if picture else []
    return {"role": role, "content": [{"type": "text", "text": text}, *image]}


def chat_of(row: dict[str, Any], chats: Sequence[Chat]) -> Chat:
    """Return the chat of a row of the table ``imports``; rows of a dump of verl have a line and no name."""
    if (line := re.search(r"\d\.jsonl line (\d+)$", row["place"])) is not None:
        return chats[int(line[1]) - 1]
    return next(chat for chat in chats if row["source_id"] in (chat.name, f"{chat.name}_epoch_1"))


def openai_row(chat: Chat) -> dict[str, Any]:
    """Return a chat of texts with ``<image>``; the last message is in parts."""
    texts = zip(chat.messages, chat.texts("<image>"), strict=True)
    messages: list[dict[str, Any]] = [{"role": each["role"], "content": text} for each, text in texts]
    messages[-1]["content"] = [{"type": "text", "text": "The end."}, {"type": "image"}]
    return {"messages": messages, "images": chat.pictures, "id": chat.name, **chat.facts}


def trace_line(chat: Chat) -> dict[str, Any]:
    """Return a trace of verifiers as versions before 0.4 wrote it."""
    nodes: list[dict[str, Any]] = []
    for message in chat.with_pictures(lambda name: {"type": "image_url", "image_url": {"url": chat.url(name)}}):
        node: dict[str, Any] = {"message": message, **({"parent": len(nodes) - 1} if nodes else {})}
        if message["role"] == "assistant":
            node |= {"sampled": True, "token_ids": [1, 2, 3], "mask": [False, True, True], "logprobs": [-0.5, -0.25]}
        nodes.append(node)
    task: Any = {"type": "Grid", "data": chat.facts}
    return {"id": chat.name, "task": task, "nodes": nodes, "rewards": {"won": {"score": 0.0, "weight": 1.0}}}


def write_openai(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    (folder / "chats.jsonl").write_text("".join(json.dumps(openai_row(chat)) + "\n" for chat in chats))
    return {"source": folder, "format": "openai"}


def write_sharegpt(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    speakers = {"system": "system", "user": "human", "assistant": "gpt"}
    rows = []
    for chat in chats:
        said = zip(chat.messages, chat.texts("<image>"), strict=True)
        conversation = [{"from": speakers[each["role"]], "value": text} for each, text in said]
        rows.append({"conversations": conversation, "images": chat.pictures, "id": chat.name, **chat.facts})
    (folder / "sharegpt.json").write_text(json.dumps(rows))
    return {"source": folder, "format": "openai"}


def write_results(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    """Write results.jsonl of verifiers as of 2025: the first messages, and all that came after them."""
    lines = []
    for number, chat in enumerate(chats):
        row = openai_row(chat)
        start = {"prompt": row["messages"][:2], "completion": row["messages"][2:], "images": row["images"]}
        info = {"id": chat.name, **chat.facts}
        lines.append(json.dumps({"example_id": number, "task": "grid", "reward": 0.0, "info": info, **start}))
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
    return {"source": folder, "format": "openai"}


def write_old_traces(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    (folder / "traces.jsonl").write_text("".join(json.dumps(trace_line(chat)) + "\n" for chat in chats))
    return {"source": folder, "format": "verifiers"}


def write_traces(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    """Write lines of verifiers 0.4: episodes with a judge's trace before that of the agent."""
    lines = []
    for chat in chats:
        trace: dict[str, Any] = trace_line(chat) | {"agent": {"name": "player", "trainable": True}}
        replies = [index for index, node in enumerate(trace["nodes"]) if node.get("sampled")]
        trace["calls"] = [{"node": index, "finish_reason": "length"} for index in replies]
        agent: Any = {"name": "judge", "trainable": False}
        judge: Any = {"task": trace["task"], "agent": agent, "nodes": trace["nodes"][:1]}
        lines.append(json.dumps({"id": "e", "env": {"id": "grid"}, "task": trace["task"], "traces": [judge, trace]}))
    (folder / "traces.jsonl").write_text("\n".join(lines) + "\n")
    return {"source": folder, "format": "verifiers"}


def write_inspect(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    with zipfile.ZipFile(folder / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        for number, chat in enumerate(chats):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(_sample(chat)))
    return {"source": folder, "format": "inspect"}


def write_inspect_json(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    log = {"version": 2, "status": "success", "eval": {"task": "grid"}, "samples": [*map(_sample, chats)]}
    (folder / "log.json").write_text(json.dumps(log))
    return {"source": folder, "format": "inspect"}


def _sample(chat: Chat) -> dict[str, Any]:
    keys = {name: f"{number:032x}" for number, name in enumerate(chat.pictures)}
    messages = chat.with_pictures(lambda name: {"type": "image", "image": f"attachment://{keys[name]}"})
    attachments = {key: chat.url(name) for name, key in keys.items()}
    sample = {"id": chat.name, "epoch": 1, "messages": messages, "attachments": attachments, "input": "Now"}
    scores = {"won": {"value": "C" if chat.facts["success"] else "I"}}
    return {**sample, "target": "", "scores": scores, "metadata": chat.facts}


def write_verl(folder: Path, chats: Sequence[Chat]) -> dict[str, Any]:
    """Write a dump of VAGEN's trainer: ChatML with the marks of pictures, and the pictures by line."""
    lines = []
    for number, chat in enumerate(chats):
        shown = folder / "image_7" / f"images_{number}"
        shown.mkdir(parents=True)
        for k, name in enumerate(chat.pictures):
            (shown / f"{k}.png").write_bytes((chat.folder / name).read_bytes())
        texts = zip(chat.messages, chat.texts("<|vision_start|><|image_pad|><|image_pad|><|vision_end|>"), strict=True)
        whole = "".join(f"<|im_start|>{each['role']}\n{text}<|im_end|>\n" for each, text in texts)
        head, begin, output = whole.partition("<|im_start|>assistant\n")
        kept = {name: value for name, value in chat.facts.items() if name != "success"}
        line = {"input": head + begin, "output": output, "score": 0.0, "gts": None, "step": 7, **kept}
        lines.append(json.dumps({**line, "traj_success": float(bool(chat.facts["success"]))}))
    (folder / "7.jsonl").write_text("\n".join(lines) + "\n")
    return {"source": folder, "format": "verl"}
