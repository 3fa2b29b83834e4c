"""Logs of inspect_ai: our episodes in its format and back with each compression, oddities, and hostile archives."""

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pivot
import pyarrow as pa
import pytest
from pivot.core.errors import ConfigError
from pivot.interop import inspect as reader

from .recorded import LEVEL, SETTINGS

META = {"env": "sokoban", "initial_state": LEVEL, "env_config": SETTINGS}


def sample(*replies: str, **fields: Any) -> dict[str, Any]:
    """Return a sample with an attachment for its second reply."""
    texts = {f"{number:032x}": reply for number, reply in enumerate(replies)}
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Play."}]
    for number, reply in enumerate(replies):
        messages.append({"role": "user", "content": [{"type": "text", "text": "Now"}], "id": str(number)})
        parts = [{"type": "reasoning", "reasoning": "so"}, {"type": "text", "text": reply}]
        messages.append({"role": "assistant", "content": f"attachment://{number:032x}" if number == 1 else parts})
    whole = {"id": 7, "epoch": 1, "input": "Now", "target": "", "messages": messages, "attachments": texts}
    return {**whole, "metadata": META, "scores": {"won": {"value": "I"}}, **fields}


def move(word: str) -> str:
    return f"<think>a</think><action>{word}</action>"


LOST = [move("up")] * 4


def eval_file(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write an archive; method 93 (zstd), which zipfile cannot write here, is patched into stored members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED if method == 93 else method) as archive:
        archive.writestr("header.json", b"{}")
        for name, content in members.items():
            archive.writestr(name, pa.compress(content, "zstd", asbytes=True) if method == 93 else content)
    data = bytearray(buffer.getvalue())
    if method == 93:
        for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            at = data.find(signature)
            while at >= 0:
                struct.pack_into("<H", data, at + offset, 93)
                at = data.find(signature, at + 4)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, 93])
def test_samples_are_labelled(tmp_path: Path, method: int) -> None:
    members = {
        "samples/7_epoch_1.json": json.dumps(sample(*LOST)).encode(),
        "samples/7_epoch_2.json": json.dumps(
            sample(move("right"), move("right"), epoch=2, scores={"won": {"value": "C"}})
        ).encode(),
    }
    result = pivot.import_rollouts(
        eval_file(tmp_path / "a.eval", members, method), tmp_path / "store", format="inspect"
    )
    assert result.problems == []
    store = pivot.load_store(tmp_path / "store")
    assert sorted(store.episodes.collect()["success"].to_list()) == [False, True]
    assert store.labels.collect()["pivot_step"].to_list() == [2]
    assert f"<think>so</think>{LOST[0]}" in store.steps.collect()["response"].to_list()


def test_oddities_are_reported(tmp_path: Path) -> None:
    cases: list[tuple[Any, str | None]] = [
        (sample(*LOST, scores=None), None),
        (sample(*LOST, scores={"a": {"value": "I"}, "b": {"value": 0.5}}), None),
        (sample(*LOST, scores={"won": {"value": "C"}}), "disagrees"),
        (sample(*LOST, limit={"type": "message", "limit": 4}, error={"message": "x"}), None),
        (sample(*LOST, attachments={}), None),
        (sample(), "unreadable"),
        (sample(*LOST, metadata={}), "environment"),
        (sample(*LOST, messages=["text"]), "unreadable"),
        (sample(messages=[{"role": "assistant", "tool_calls": 7}]), "unreadable"),
        (b'{"id": 1, "mess', "unreadable"),
    ]
    members = {
        f"samples/{number}_epoch_1.json": case if isinstance(case, bytes) else json.dumps(case).encode()
        for number, (case, _) in enumerate(cases)
    }
    members["samples/../../escape.json"] = b"{}"
    result = pivot.import_rollouts(
        eval_file(tmp_path / "a.eval", members), tmp_path / "store", format="inspect", options={"evidence": "declared"}
    )
    kinds = {problem.place: str(problem.kind) for problem in result.problems}
    assert kinds == {
        f"a.eval samples/{number}_epoch_1.json": kind for number, (_, kind) in enumerate(cases) if kind is not None
    }
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("a.eval", "store")] == []


def test_attachments_are_bounded_where_they_are_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_BYTES", 1 << 20)
    many = [{"role": "user", "content": "attachment://a " * 300}, {"role": "assistant", "content": LOST[0]}]
    spread = [{"role": "user", "content": "attachment://a"}] * 300 + many[1:]
    bombs = [sample(messages=messages, attachments={"a": "x" * 10_000}) for messages in (many, spread)]
    members = {f"samples/{n}_epoch_1.json": json.dumps(each).encode() for n, each in enumerate([*bombs, sample(*LOST)])}
    result = pivot.import_rollouts(eval_file(tmp_path / "a.eval", members), tmp_path / "store", format="inspect")
    assert [problem.detail for problem in result.problems] == [
        "its messages have more than 1 MiB with their attachments in place"
    ] * 2
    assert result.episodes == 1


def test_a_damaged_archive_is_left_out_alone(tmp_path: Path) -> None:
    good = eval_file(tmp_path / "a.eval", {"samples/1_epoch_1.json": json.dumps(sample(*LOST)).encode()})
    (tmp_path / "b.eval").write_bytes(good.read_bytes()[:300])
    result = pivot.import_rollouts(tmp_path, tmp_path / "store", format="inspect")
    assert [problem.place for problem in result.problems] == ["b.eval"] and result.episodes == 1
    assert "as a log of inspect_ai" in result.problems[0].detail


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, 93])
def test_bombs_and_damaged_archives_are_refused(tmp_path: Path, method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_BYTES", 1 << 20)
    bomb = b'{"id": 1, "x": "' + b"a" * (64 << 20) + b'"}'
    members = {"samples/1_epoch_1.json": bomb, "samples/2_epoch_1.json": json.dumps(sample(*LOST)).encode()}
    path = eval_file(tmp_path / "a.eval", members, method)
    assert path.stat().st_size < 1 << 20
    result = pivot.import_rollouts(path, tmp_path / "store", format="inspect")
    assert [problem.detail for problem in result.problems] == ["the sample unpacks to more than 1 MiB"]
    data = bytearray(path.read_bytes())
    start = data.find(b"samples/2_epoch_1.json") + 60
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    result = pivot.import_rollouts(path, tmp_path / "other", format="inspect")
    assert [str(problem.kind) for problem in result.problems] == ["unreadable", "unreadable"]
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match="as a log of inspect_ai"):
        pivot.import_rollouts(path, tmp_path / "third", format="inspect")
