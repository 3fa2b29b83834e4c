"""Untrusted sources: torn, malformed and hostile lines are named with their reason, the rest is imported."""

import base64
import json
import os
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pivot
import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.interop import base
from pivot.tests.dataset.containers import png_of

from .recorded import LEVEL, episode, write_lines

GOOD = ["up", "up", "up", "up"]


def _framed(frame: str) -> dict[str, Any]:
    return episode(*GOOD) | {"turns": [{"actions": ["up"], "frame": frame}] * 4}


def _gym(name: str, **env_config: Any) -> dict[str, Any]:
    return episode(*GOOD, env="gym", env_config={"id": name, **env_config})


OVER = "over before the first action"
HOLE = episode(*GOOD, env="frozenlake", env_config={}, initial_state="SH\nFG\n@ 0 1")
OTHER_GAME = _gym("FrozenLake-v1", kwargs={"is_slippery": False})
OTHER_GAME |= {"turns": [{"actions": ["left"]}]}
OTHER_GAME |= {"initial_state": '{"id": "FrozenLake-v1", "actions": {"left": 0}, "seed": 0}'}
INFINITE = json.dumps(episode(*GOOD, env="gym", env_config={"kwargs": {"x": float("inf")}})).encode()
LONG_TOKEN = episode(*GOOD) | {"turns": [{"actions": ["up"], "token_ids": [1, 1 << 31]}]}


BAD: dict[str, tuple[Any, str, str]] = {
    "torn": (b'{"format": "pivot-episode-1", "env": "sok', "unreadable", "EOF"),
    "not an object": (b"[1, 2]", "unreadable", "object"),
    "binary": (b"\x00\x01\x02", "unreadable", "binary"),
    "nested": (b'{"format": "pivot-episode-1", "x": ' + b"[" * 100_000 + b"}", "unreadable", "recursion"),
    "infinity in a setting of any type": (INFINITE, "unreadable", "'env_config' cannot be stored"),
    "a token of 33 bits": (LONG_TOKEN, "unreadable", "turns.0.token_ids.1"),
    "solved at the start": (episode(*GOOD, initial_state=LEVEL.replace("$.", " *")), "no_state", OVER),
    "in a hole at the start": (HOLE, "no_state", OVER),
    "an environment that cannot be made": (_gym("FrozenLake-v1", kwargs={"nope": 1}), "settings", "cannot be made"),
    "a large environment": (_gym("MiniGrid-Empty-8x8-v0", kwargs={"size": 3000}), "settings", "numbers to 3000"),
    "a large map": (_gym("FrozenLake-v1", kwargs={"desc": ["F" * 5000] * 2}), "settings", "10"),
    "another game than the settings say": (OTHER_GAME, "no_state", "other settings"),
    "another format": (episode(*GOOD) | {"format": "other"}, "unreadable", "format"),
    "no turns": (episode(), "unreadable", "turns"),
    "unknown environment": (episode(*GOOD, env="../../etc"), "environment", "etc"),
    "functions of failure modes": (
        _gym("FrozenLake-v1", failure_modes={"hole": "mine:fell"}),
        *("settings", "gym.failure_modes names 'mine', which would be loaded"),
    ),
    "a module as an environment": (_gym("antigravity:Env-v0"), "settings", ""),
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


BOMB = png_of(50_000, 50_000, zlib.compress(b"\0" * 1_000_000))
"""A small file that states 50,000 x 50,000 pixels."""


def test_every_bad_line_is_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    pairs = [(line, episode(*GOOD, id=str(number))) for number, (line, *_) in enumerate(BAD.values())]
    source = write_lines(tmp_path / "source", *(each for pair in pairs for each in pair))
    (tmp_path / "secret.png").write_bytes(b"secret")
    (source / "link.png").symlink_to(tmp_path / "secret.png")
    (source / "bomb.png").write_bytes(BOMB)
    (source / "text.png").write_bytes(b"no picture")
    (source / "folder").mkdir()
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert result.episodes == len(BAD)
    named = {problem.place: problem for problem in result.problems}
    for number, (name, (_, kind, words)) in enumerate(BAD.items()):
        problem = named.pop(f"episodes.jsonl line {2 * number + 1}")
        assert problem.kind == kind, (name, problem)
        assert words in problem.detail, (name, problem)
        assert " at 0x" not in problem.detail
        assert len(problem.detail) < 1000 and "secret" not in problem.detail.replace("../secret.png", "")
    assert named == {}


def test_an_environment_without_memory_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrozenLakeEnv, "reset", Mock(side_effect=MemoryError))
    lines = [episode(*GOOD, env="frozenlake", env_config={}, initial_state="SF\nFG"), episode(*GOOD)]
    result = pivot.import_rollouts(write_lines(tmp_path / "source", *lines), tmp_path / "store")
    assert [(each.place, str(each.kind)) for each in result.problems] == [("episodes.jsonl line 1", "settings")]
    assert "memory" in result.problems[0].detail and result.episodes == 1


def test_a_line_gets_one_try_of_a_generator(tmp_path: Path) -> None:
    endless = {"rows": 40, "cols": 40, "boxes": 6, "min_solution": 300, "max_solution": 9999, "max_tries": 100_000}
    lines = [episode(*GOOD, initial_state=None, seed=3, env_config=endless | {"max_states": 10**12})]
    result = pivot.import_rollouts(write_lines(tmp_path / "source", *lines), tmp_path / "store")
    assert [str(each.kind) for each in result.problems] == ["no_state"]
    assert "at the first try" in result.problems[0].detail


def test_a_line_of_any_length_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_BYTES", 1 << 16)
    source = write_lines(tmp_path / "source", episode(*GOOD), b'{"x": "' + b"a" * (1 << 20) + b'"}', episode("left"))
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert [problem.place for problem in result.problems] == ["episodes.jsonl line 2"]
    assert "found a line of" in result.problems[0].detail and result.episodes == 2


def test_a_torn_last_line_is_named_and_one_without_a_line_end_is_read(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode("left"), episode(*GOOD))
    path = source / "episodes.jsonl"
    path.write_bytes(path.read_bytes().rstrip())
    whole = pivot.import_rollouts(source, tmp_path / "whole")
    assert whole.problems == [] and whole.episodes == 2
    path.write_bytes(path.read_bytes()[:-39])
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert [(each.place, each.kind) for each in result.problems] == [("episodes.jsonl line 2", "unreadable")]
    assert "torn" in result.problems[0].detail


def test_two_levels_of_one_name_stay_distinct(tmp_path: Path) -> None:
    other = LEVEL.replace("@ $", " @$")
    lines = [episode(*GOOD, task_id="level"), episode(*GOOD, task_id="level", initial_state=other)]
    result = pivot.import_rollouts(write_lines(tmp_path / "source", *lines), tmp_path / "store")
    assert [problem.kind for problem in result.problems] == ["level"]


FILES = {"jsonl": "episodes.jsonl", "openai": "chats.jsonl", "verifiers": "run/traces.jsonl"}
FILES |= {"verl": "1.jsonl", "inspect": "log.eval", "vagen": "one/metrics.json"}


@pytest.mark.parametrize(("format", "file"), [*FILES.items(), ("openai", "data.json")])
def test_no_file_is_read_through_a_link_that_leads_out(tmp_path: Path, format: str, file: str) -> None:
    assert FILES.keys() == set(plugins.names("importers"))
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(episode(*GOOD)) + "\n")
    name = tmp_path / "source" / file
    name.parent.mkdir(parents=True)
    name.symlink_to(secret)
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", format=format)
    assert [str(problem.kind) for problem in result.problems] == ["unreadable"] and result.build is None
    assert "link that leads out" in result.problems[0].detail
    name.unlink()
    os.mkfifo(name)  # reading one would wait forever
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "store", format=format)
    assert "regular file" in result.problems[0].detail


def test_a_bomb_in_a_data_url_is_refused(tmp_path: Path) -> None:
    url = f"data:image/png;base64,{base64.b64encode(BOMB).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Now"}]
    reply = {"role": "assistant", "content": "<action>up</action>"}
    row = {"messages": [{"role": "user", "content": parts}, reply], "env": "sokoban", "initial_state": LEVEL}
    source = write_lines(tmp_path / "chats", row)
    result = pivot.import_rollouts(source, tmp_path / "store", format="openai")
    assert "exceeds limit" in result.problems[0].detail and result.build is None


def test_sources_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        pivot.import_rollouts(tmp_path / "gone", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"holds no \*.jsonl"):
        pivot.import_rollouts(tmp_path / "empty", tmp_path / "store")
    nothing = pivot.import_rollouts(write_lines(tmp_path / "bad", b"{"), tmp_path / "store")
    assert nothing.build is None and len(nothing.problems) == 1 and not (tmp_path / "store").exists()
    (tmp_path / "empty" / "data.json").symlink_to(tmp_path / "bad" / "episodes.jsonl")
    with pytest.raises(ConfigError, match="link that leads out"):
        pivot.import_rollouts(tmp_path / "empty" / "data.json", tmp_path / "store", format="openai")
