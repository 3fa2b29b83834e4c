"""Sources that nobody should trust: torn, malformed and hostile lines are named with their reason, the rest goes in."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.errors import ConfigError
from pivot.imports import base

from .recorded import LEVEL, SETTINGS, episode, write_lines

GOOD = ["up", "up", "up", "up"]


def _framed(frame: str) -> dict[str, Any]:
    return episode(*GOOD) | {"turns": [{"actions": ["up"], "frame": frame}] * 4}


BAD: dict[str, tuple[Any, str, str]] = {
    "torn": (b'{"format": "pivot-episode-1", "env": "sok', "unreadable", "EOF"),
    "not an object": (b"[1, 2]", "unreadable", "object"),
    "binary": (b"\x00\x01\x02", "unreadable", "binary"),
    "nested": (b'{"format": "pivot-episode-1", "x": ' + b"[" * 100_000 + b"}", "unreadable", "recursion"),
    "half a surrogate": (json.dumps(episode(*GOOD, id="x")).replace('"x"', '"\\ud800"').encode(), "unreadable", "JSON"),
    "not a number": (b'{"format": "pivot-episode-1", "env": "sokoban", "turns": [{"reward": NaN}]}', "unreadable", ""),
    "another format": (episode(*GOOD) | {"format": "other"}, "unreadable", "format"),
    "no turns": (episode(), "unreadable", "turns"),
    "unknown environment": (episode(*GOOD, env="../../etc"), "environment", "etc"),
    "unknown setting": (episode(*GOOD, env_config={"nope": 1}), "settings", "nope"),
    "a folder as a setting": (episode(*GOOD, env="svg", env_config={"targets_dir": "/etc"}), "settings", ""),
    "no action": (episode("jump", "up", "up", "up"), "action", "'jump' is not an action"),
    "an index": (episode(99), "action", "99"),
    "many actions": (episode(["up", "up"]), "action", "actions_per_turn is 1"),
    "no level": (episode(*GOOD, initial_state="#"), "no_state", "player"),
    "neither state nor seed": (episode(*GOOD, initial_state=None), "no_state", "no first picture"),
    "absolute picture": (_framed("/etc/passwd"), "unreadable", "relative"),
    "picture above": (_framed("../secret.png"), "unreadable", "relative"),
    "picture by link": (_framed("link.png"), "unreadable", "link"),
    "picture from a server": (_framed("https://example.org/x.png"), "unreadable", "relative"),
    "data url": (_framed("data:image/png;base64,AAAA"), "unreadable", "data URL"),
    "a bomb": (_framed("bomb.png"), "unreadable", "exceeds limit"),
    "a folder as a picture": (_framed("folder"), "unreadable", "regular"),
    "a missing picture": (_framed("gone.png"), "unreadable", "cannot read"),
    "a text as a picture": (_framed("text.png"), "unreadable", "decode"),
}


def _bomb() -> bytes:
    """Return a small file that states 50,000 x 50,000 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1_000_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_every_bad_line_is_named_and_the_rest_goes_in(tmp_path: Path) -> None:
    lines = [each for line, _, _ in BAD.values() for each in (line, episode(*GOOD))]
    source = write_lines(tmp_path / "source", *lines)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (source / "link.png").symlink_to(tmp_path / "secret.png")
    (source / "bomb.png").write_bytes(_bomb())
    (source / "text.png").write_bytes(b"no picture")
    (source / "folder").mkdir()
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert result.episodes == len(BAD)
    named = {problem.place: problem for problem in result.problems}
    for number, (name, (_, kind, words)) in enumerate(BAD.items()):
        problem = named.pop(f"episodes.jsonl line {2 * number + 1}")
        assert problem.kind == kind, (name, problem)
        assert words in problem.detail, (name, problem)
        assert len(problem.detail) < 1000 and "secret" not in problem.detail.replace("../secret.png", "")
    assert named == {}


def test_a_line_of_any_length_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 16)
    source = write_lines(tmp_path / "source", episode(*GOOD), b'{"x": "' + b"a" * (1 << 20) + b'"}', episode(*GOOD))
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert [problem.place for problem in result.problems] == ["episodes.jsonl line 2"]
    assert "found a line of" in result.problems[0].detail and result.episodes == 2


def test_a_torn_last_line_is_named(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode(*GOOD), episode(*GOOD))
    path = source / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert [(each.place, each.kind) for each in result.problems] == [("episodes.jsonl line 2", "unreadable")]
    assert "torn" in result.problems[0].detail


def test_two_levels_of_one_name_are_told_apart(tmp_path: Path) -> None:
    other = LEVEL.replace("@ $", " @$")
    lines = [episode(*GOOD, task_id="level"), episode(*GOOD, task_id="level", initial_state=other)]
    result = pivot.import_rollouts(write_lines(tmp_path / "source", *lines), tmp_path / "store")
    assert [problem.kind for problem in result.problems] == ["level"]


def test_sources_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        pivot.import_rollouts(tmp_path / "gone", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"holds no \*.jsonl"):
        pivot.import_rollouts(tmp_path / "empty", tmp_path / "store")
    nothing = pivot.import_rollouts(write_lines(tmp_path / "bad", b"{"), tmp_path / "store")
    assert nothing.build is None and len(nothing.problems) == 1 and not (tmp_path / "store").exists()
    assert SETTINGS["horizon"] == len(GOOD)
