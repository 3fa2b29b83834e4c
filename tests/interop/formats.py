"""Episodes of a store in the formats of other programs."""

import base64
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pivot
from pivot.core.images import decode, encode_png

Steps = list[dict[str, Any]]
Writer = Callable[[Path, list[tuple[dict[str, Any], Steps]]], None]


def episodes_of(root: Path, folder: Path) -> list[tuple[dict[str, Any], Steps]]:
    """Return the episodes of a store with their steps, and write their pictures."""
    frames = pivot.load_store(root)
    (folder / "pictures").mkdir(parents=True)
    for row in frames.frames.collect().to_dicts():
        (folder / "pictures" / f"{row['frame_id']}.png").write_bytes(encode_png(decode(row["image"])))
    steps = frames.steps.collect().partition_by("episode_id", as_dict=True)
    rows = frames.episodes.collect().to_dicts()
    return [(row, steps[row["episode_id"],].sort("t").to_dicts()) for row in rows]


def facts(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of PIVOT's own format that a row may have."""
    names = ("env", "initial_state", "instruction", "success")
    return {**{name: row[name] for name in names}, "env_config": json.loads(row["env_config"])}


def frames_of(steps: Steps) -> list[str]:
    return [*(step["frame_id"] for step in steps), steps[-1]["next_frame_id"]]


def openai_row(row: dict[str, Any], steps: Steps) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Play."}]
    for step in steps:
        messages += [
            {"role": "user", "content": "Now: <image>"},
            {"role": "assistant", "content": step["response"]},
        ]
    messages.append({"role": "user", "content": [{"type": "text", "text": "The end."}, {"type": "image"}]})
    images = [f"pictures/{name}.png" for name in frames_of(steps)]
    return {"messages": messages, "images": images, "id": row["episode_id"], **facts(row)}


def trace_line(folder: Path, row: dict[str, Any], steps: Steps) -> dict[str, Any]:
    """Return a trace of verifiers as versions before 0.4 wrote it."""
    nodes: list[dict[str, Any]] = []
    names = iter(frames_of(steps))
    for message in openai_row(row, steps)["messages"]:
        content = message["content"]
        if message["role"] == "user":
            data = base64.b64encode((folder / "pictures" / f"{next(names)}.png").read_bytes()).decode()
            url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
            content = [{"type": "text", "text": "Now:"}, url]
        node: dict[str, Any] = {"message": {"role": message["role"], "content": content}}
        if nodes:
            node["parent"] = len(nodes) - 1
        if message["role"] == "assistant":
            node |= {"sampled": True, "token_ids": [1, 2, 3], "mask": [False, True, True], "logprobs": [-0.5, -0.25]}
        nodes.append(node)
    task: Any = {"type": "Grid", "data": facts(row)}
    return {"id": row["episode_id"], "task": task, "nodes": nodes, "rewards": {"won": {"score": 0.0, "weight": 1.0}}}


def write_openai(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    lines = [json.dumps(openai_row(row, steps)) for row, steps in episodes]
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n")


def write_sharegpt(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    speakers = {"system": "system", "user": "human", "assistant": "gpt"}
    rows = []
    for row, steps in episodes:
        chat = openai_row(row, steps)
        chat["conversations"] = [
            {"from": speakers[each["role"]], "value": _text(each["content"])} for each in chat.pop("messages")
        ]
        rows.append(chat)
    (folder / "sharegpt.json").write_text(json.dumps(rows))


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "<image>"


def write_results(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    """Write results.jsonl of verifiers as of 2025: the first messages, and all that came after them."""
    lines = []
    for number, (row, steps) in enumerate(episodes):
        chat = openai_row(row, steps)
        start = {"prompt": chat["messages"][:2], "completion": chat["messages"][2:], "images": chat["images"]}
        facts_of_row = {name: value for name, value in chat.items() if name not in ("messages", "images")}
        lines.append(json.dumps({"example_id": number, "task": "grid", "reward": 0.0, "info": facts_of_row, **start}))
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")


def write_old_traces(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    lines = [json.dumps(trace_line(folder, row, steps)) for row, steps in episodes]
    (folder / "traces.jsonl").write_text("\n".join(lines) + "\n")


def write_traces(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    """Write lines of verifiers 0.4: episodes with a judge's trace before that of the agent."""
    lines = []
    for row, steps in episodes:
        trace: dict[str, Any] = trace_line(folder, row, steps) | {"agent": {"name": "player", "trainable": True}}
        replies = [index for index, node in enumerate(trace["nodes"]) if node.get("sampled")]
        trace["calls"] = [{"node": index, "finish_reason": "length"} for index in replies]
        judge: Any = {
            "task": trace["task"],
            "agent": {"name": "judge", "trainable": False},
            "nodes": trace["nodes"][:1],
        }
        lines.append(json.dumps({"id": "e", "env": {"id": "grid"}, "task": trace["task"], "traces": [judge, trace]}))
    (folder / "traces.jsonl").write_text("\n".join(lines) + "\n")


def write_inspect(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    with zipfile.ZipFile(folder / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        for number, sample in enumerate(_samples(folder, episodes)):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))


def write_inspect_json(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    log = {"version": 2, "status": "success", "eval": {"task": "grid"}, "samples": [*_samples(folder, episodes)]}
    (folder / "log.json").write_text(json.dumps(log))


def _samples(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> Iterator[dict[str, Any]]:
    for row, steps in episodes:
        attachments: dict[str, str] = {}
        messages: list[dict[str, Any]] = []
        for step in steps:
            data = base64.b64encode((folder / "pictures" / f"{step['frame_id']}.png").read_bytes()).decode()
            attachments[step["frame_id"][:32]] = f"data:image/png;base64,{data}"
            picture = {"type": "image", "image": f"attachment://{step['frame_id'][:32]}"}
            messages.append({"role": "user", "content": [{"type": "text", "text": "Now"}, picture]})
            messages.append({"role": "assistant", "content": step["response"]})
        sample = {"id": row["episode_id"], "epoch": 1, "messages": messages, "attachments": attachments}
        scores = {"won": {"value": "C" if row["success"] else "I"}}
        yield {**sample, "input": "Now", "target": "", "scores": scores, "metadata": facts(row)}


def write_verl(folder: Path, episodes: list[tuple[dict[str, Any], Steps]]) -> None:
    """Write a dump of VAGEN's trainer: ChatML with the marks of pictures, and the pictures by line."""
    seen = "<|im_start|>user\nNow: <|vision_start|><|image_pad|><|image_pad|><|vision_end|><|im_end|>\n"
    lines = []
    for number, (row, steps) in enumerate(episodes):
        shown = folder / "image_7" / f"images_{number}"
        shown.mkdir(parents=True)
        turns = [f"<|im_start|>assistant\n{step['response']}<|im_end|>\n" for step in steps]
        for k, step in enumerate(steps):
            (shown / f"{k}.png").write_bytes((folder / "pictures" / f"{step['frame_id']}.png").read_bytes())
        head = "<|im_start|>system\nPlay.<|im_end|>\n" + seen + "<|im_start|>assistant\n"
        output = seen.join(turns).removeprefix("<|im_start|>assistant\n")
        more = {"score": row["episode_return"], "gts": None, "step": 7, "traj_success": float(bool(row["success"]))}
        kept = {name: value for name, value in facts(row).items() if name != "success"}
        lines.append(json.dumps({"input": head, "output": output, **more, **kept}))
    (folder / "7.jsonl").write_text("\n".join(lines) + "\n")
