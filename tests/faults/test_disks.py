"""Disks, pre-flight checks and starts that fail: the message names cause and fix, and nothing is lost or left over."""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pivot
import pytest
from pivot.cli import app
from pivot.core.errors import CacheError, ConfigError, PivotError, ServerGoneError, StoreError
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.stages import RolloutStage
from pivot.environments.sokoban import SokobanEnv
from pivot.models import address, cache, preflight
from pivot.models.openai import backend
from pivot.models.openai import model as openai_model
from pivot.tests.cli.command_line import run
from pivot.tests.flow_runs import assert_whole, config_of, files_of
from pivot.tests.flows.test_writers import QUICK, both, tables_of
from pivot.tests.models.chat_server import MODEL, ChatServer, pictures_of, served
from pivot.tests.stores import built_once, copy_store
from typer.testing import CliRunner

CONFIG = config_of({"sokoban": 2, "frozenlake": 2})


built = built_once(CONFIG)


@pytest.fixture
def root(built: Path, disk: Path) -> Path:
    """A copy of the store on a filesystem of its own."""
    return copy_store(built, disk / "store")


def _remount(root: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(root.parent)], check=True)


def test_a_relabel_on_a_full_disk_loses_nothing(root: Path) -> None:
    _remount(root, f"size={shutil.disk_usage(root).used // 1024 + 40}k")
    with pytest.raises(StoreError, match="No space left on device"):
        run("relabel", root, "--workers", "1")
    _remount(root, "size=64m")
    with pytest.raises(StoreError, match="problems found"):  # files of the next labels, which a pattern would find
        run("verify", root, "--workers", "1")
    run("relabel", root, "--workers", "1")
    assert_whole(root)


def test_a_store_on_a_read_only_disk_is_read_and_a_command_that_writes_is_refused(root: Path, disk: Path) -> None:
    (root / ".lock").unlink()
    _remount(root, "ro")
    shown = run("build", "--config", root / "run.json", "--out", root, "--workers", "1")
    assert "(already complete)" in " ".join(shown.split())
    for arguments in (("stats", root), ("peek", root), ("verify", root, "--workers", "1")):
        run(*arguments)
    with pytest.raises(StoreError, match="holds a run with another config"):
        pivot.build(CONFIG | {"seed": 1}, root)
    refused = pytest.raises(StoreError, match=f"{disk}.*Read-only file system; choose a folder on a writable")
    for arguments in (
        ("build", "sokoban", "--out", disk / "other"),
        ("build", "sokoban", "--out", root, "--refresh"),
        ("relabel", root, "--workers", "1"),
    ):
        with refused:
            run(*arguments)
    for config, refresh in ((CONFIG, True), (config_of({"sokoban": 2, "frozenlake": 3}), False)):
        with refused:
            pivot.build(config, root, refresh=refresh)
    _remount(root, "rw")
    (root / "steps/sokoban/00000.parquet").unlink()
    _remount(root, "ro")
    with refused:
        pivot.build(CONFIG, root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="Permission denied; choose a folder you may write to"):
        run("build", "sokoban", "--out", tmp_path / "closed" / "store")


STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "levels that cannot be made": (
        config_of() | {"environments": {"frozenlake": {"tasks": 99, "settings": {"size": 2}}}},
        "no level for task 44",
    ),
    "no simulator": (
        config_of() | {"environments": {"navigation": {"tasks": 1, "settings": {"backend": "thor"}}}},
        "plays navigation in embedded rooms",
    ),
}


@pytest.mark.parametrize(("config", "message"), STARTS.values(), ids=STARTS)
def test_a_start_that_fails_leaves_no_run_json(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with pytest.raises(PivotError, match=message):
        pivot.build(config, root)
    assert [name for name in files_of(root) if not name.startswith(".")] == []


@pytest.mark.parametrize(("owner", "name"), [(SokobanEnv, "make_level"), (RolloutStage, "make")])
def test_a_plugins_bug_leaves_nothing(owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, Mock(side_effect=LookupError))
    with pytest.raises(LookupError):
        pivot.build(config_of(), tmp_path / "store")
    assert [name for name in files_of(tmp_path) if not name.split("/")[1].startswith(".")] == []
    monkeypatch.undo()
    pivot.build(config_of(), tmp_path / "store")


def part(url: str, **changes: Any) -> dict[str, Any]:
    """A model at an address, with default patience."""
    options = {"model": changes.pop("model", MODEL)}
    return {"name": "openai", "options": options, "service": {"base_url": url, "cache": "", **changes}}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the five seconds after which a pre-flight check gives a server up; a run has minutes."""
    monkeypatch.setattr(backend, "PATIENCE_SECONDS", 0.5)


def no_pictures(body: dict[str, Any]) -> str | None:
    return "this model reads text only" if pictures_of(body) else None


def blind(body: dict[str, Any]) -> dict[str, Any]:
    """Drops pictures, and counts the tokens of the rest."""
    texts = [part["text"] for message in body["messages"] for part in message["content"] if part["type"] == "text"]
    return both(body) | {"prompt_tokens": 20 + sum(map(len, texts)) // 4}


@dataclass(frozen=True)
class Mistake:
    """One mistake of a server or of its configuration."""

    message: str
    error: type[PivotError] = ConfigError
    server: dict[str, Any] = field(default_factory=dict)
    change: Callable[[dict[str, Any], Path], Any] = lambda part, folder: None
    """Makes the mistake in a part of the config."""
    role: str = "policy"
    """The role that the test gives the mistake; the rule does not depend on it."""


def nobody(part: dict[str, Any], folder: Path) -> None:
    part["service"]["base_url"] = "http://127.0.0.1:9/v1"


def cached_in_a_file(part: dict[str, Any], folder: Path) -> None:
    (folder / "file").write_text("not a folder")
    part["service"]["cache"] = str(folder / "file" / "calls.sqlite")


def cached_in_garbage(part: dict[str, Any], folder: Path) -> None:
    (folder / "calls.sqlite").write_bytes(b"no database at all" * 1000)
    part["service"]["cache"] = str(folder / "calls.sqlite")


MISTAKES = {
    "nobody there": Mistake(
        r"no server answers at http://127.0.0.1:9/v1", ServerGoneError, change=nobody, role="teacher"
    ),
    "wrong key": Mistake(r"refuses the credentials \(status 401.*OPENAI_API_KEY", server={"key": "Bearer other"}),
    "unknown model": Mistake(
        r"has no model 'large'; it has: tiny",
        change=lambda part, _: part["options"].update(model="large"),
        role="teacher",
    ),
    "no pictures": Mistake(
        r"accepts text but no pictures.*this model reads text only", server={"refuses": no_pictures}
    ),
    "an error for pictures": Mistake(
        r"accepts text but no pictures.*status 500: no projector is loaded",
        server={"refuses": lambda body: (500, {"message": "no projector is loaded"}) if pictures_of(body) else None},
    ),
    "pictures dropped": Mistake(r"silently drops pictures", server={"reply": blind}, role="teacher"),
    "no JSON": Mistake(
        r"answers no JSON where guidance is asked for.*structured output",
        server={
            "reply": lambda body: {"text": "Look where you push."},
            "unknown_fields": frozenset({"response_format"}),
        },
        role="teacher",
    ),
    "always an error": Mistake(
        r"no answer from http.* tries \(last: status 500: status 500 on purpose\)",
        ServerGoneError,
        server={"fault": lambda key, tried: "500"},
    ),
    "hangs up": Mistake(
        r"closed the connection without an answer", ServerGoneError, server={"fault": lambda key, tried: "drop"}
    ),
    "no credit": Mistake(
        r"status 402: status 402 on purpose", server={"fault": lambda key, tried: "402"}, role="teacher"
    ),
    "cache under a file": Mistake(r"cannot open the call cache .*calls.sqlite", CacheError, change=cached_in_a_file),
    "corrupt cache": Mistake(
        r"cannot open the call cache .*not a database", CacheError, change=cached_in_garbage, role="teacher"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_set_up_stops_the_run_before_anything_is_made(mistake: Mistake, tmp_path: Path) -> None:
    role = mistake.role
    with (
        served(both, notes_meetings=True) as good,
        served(**{"reply": both, "notes_meetings": True} | mistake.server) as bad,
    ):
        parts = {each: part(bad.url if each == role else good.url) for each in ("policy", "teacher")}
        mistake.change(parts[role], tmp_path)
        with pytest.raises(mistake.error, match=f"^{role}: .*{mistake.message}") as stopped:
            pivot.build(config_of(2, **parts), tmp_path / "store")
        assert good.log.requests <= 6
    assert "\n" not in str(stopped.value)
    if role == "teacher":
        assert " --model" not in str(stopped.value) and " --base-url" not in str(stopped.value)
    assert not [*tmp_path.rglob("run.json"), *tmp_path.rglob("*.parquet")]


def test_a_key_with_a_line_end_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(address.KEY_VARIABLE, "sk-secret\n")
    with (
        served(both, notes_meetings=True) as server,
        pytest.raises(ConfigError, match="OPENAI_API_KEY holds a line end"),
    ):
        pivot.build(config_of(1, policy=part(server.url)), tmp_path)
    assert server.log.requests == 0


def test_a_silent_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_model, "FIRST_CONTACT_SECONDS", 0.5)

    async def run() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with server:
            await asyncio.to_thread(pivot.build, config_of(1, teacher=part(url)), tmp_path)

    with pytest.raises(ServerGoneError, match=r"^teacher: .*accepted a connection but sent nothing"):
        asyncio.run(run())


def test_the_words_of_a_server_that_asks_for_a_day_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "ANSWER_SECONDS", 1.0)
    with (
        served(both, fault=lambda key, tried: "429", retry_after="86400", notes_meetings=True) as server,
        pytest.raises(ServerGoneError, match=r"no answer .* within 1 s \(last: status 429: status 429 on purpose\)"),
    ):
        pivot.build(config_of(1, policy=part(server.url)), tmp_path)


def test_no_server_is_checked_for_finished_work(tmp_path: Path) -> None:
    with served(both, notes_meetings=True) as server:
        config = config_of(1, policy=part(server.url), teacher=part(server.url))
        pivot.build(config, tmp_path)
        requests_before = server.log.requests
        assert requests_before > 10
        assert pivot.build(config, tmp_path).already_complete
        assert server.log.requests == requests_before
    # An export is rebuilt without a server.
    (tmp_path / "manifest.json").unlink()
    for receipt in (tmp_path / ".receipts").glob("export*/*/*.json"):
        receipt.unlink()
    assert not pivot.build(config, tmp_path).already_complete
    # One more level needs both servers.
    with pytest.raises(ServerGoneError, match=r"^policy: "):
        pivot.build(config | {"environments": {"sokoban": {"tasks": 2, "settings": {}}}}, tmp_path)


# Run-ending errors


def balance(server: ChatServer, answers: int) -> Callable[[str, int], str | None]:
    """Pay for a number of further answers."""
    end = server.log.answered + answers
    return lambda key, tried: "402" if server.log.answered >= end else None


@pytest.mark.parametrize(("role", "at_a_time"), [("policy", 256), ("teacher", 4)])
def test_a_balance_that_ends_stops_the_run_and_the_next_one_goes_on(role: str, at_a_time: int, tmp_path: Path) -> None:
    """Catch a run that ends in thousands of failed episodes, or that pays again for what was finished."""
    tasks = {"sokoban": 4} if role == "policy" else {"frozenlake": 10}
    with served(both) as server:
        service = {**QUICK, "base_url": server.url, "max_concurrency": at_a_time}
        shard = 1 if role == "policy" else 10  # labels of a shard that was begun are kept, too
        model = {role: part(server.url) | {"service": service}}
        config = config_of(tasks, rollouts=8, tasks_per_shard=shard, **model)
        pivot.build(config, tmp_path / "whole")
        whole = server.log.answered
        assert whole > 64
        server.fault = balance(server, 28)  # some 40 refusals follow; a late answer forgives some
        with pytest.raises(
            ServerGoneError, match=r"refused 24 requests .* 402 on purpose.*finished .* kept.*same comm"
        ):
            pivot.build(config, tmp_path / "store")
        before = server.log.answered
        server.fault = lambda key, tried: None
        assert pivot.build(config, tmp_path / "store").pending_episodes == 0
        if at_a_time == 4 or role == "teacher":  # what was finished is not asked for again
            assert server.log.answered - before < whole - 16
    assert tables_of(tmp_path / "store") == tables_of(tmp_path / "whole")
    assert_whole(tmp_path / "store")


def test_a_build_with_pending_work_says_why(tmp_path: Path) -> None:
    arguments = ["build", "sokoban", "--out", str(tmp_path / "store"), "--tasks", "1", "--no-cache", "--workers", "1"]
    with served(both) as server:
        policy = ["--policy", "openai", "--model", MODEL, "--base-url", server.url]
        server.fault = balance(server, 30)
        run = CliRunner().invoke(app, [*arguments, *policy])
    assert run.exit_code == 3, run.output
    said = " ".join(run.stdout.split())
    assert re.search(r"\d episodes ended in an error, count in no share and are pending", said), said
    assert re.search(r"the most frequent error, (\d) of \1: PolicyError: http://127.* \(status 402: status 402", said)


@pytest.mark.parametrize("role", ["policy", "teacher"])
def test_a_cache_that_breaks_ends_the_run(role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after three answers."""
    put, kept = cache.CallCache.put, 0

    def full(self: Any, *arguments: Any) -> None:
        nonlocal kept
        kept += 1
        if kept > 3:
            self._file = Mock(close=self._file.close, execute=Mock(side_effect=OSError(28, "No space left on device")))
        put(self, *arguments)

    with served(both) as server:
        service = {"base_url": server.url, "cache": str(tmp_path / "calls.sqlite"), "max_concurrency": 2}
        config = config_of({"frozenlake": 3}, **{role: {**part(server.url), "service": {**QUICK, **service}}})
        with monkeypatch.context() as patch:
            patch.setattr(cache.CallCache, "put", full)
            with pytest.raises(CacheError, match=r"cannot write the call cache .*No space left.*--no-cache"):
                pivot.build(config, tmp_path / "store")
        assert server.log.answered < 20
        assert pivot.build(config, tmp_path / "store").pending_episodes == 0
    assert load_store(tmp_path / "store").episodes.collect().height == 12
