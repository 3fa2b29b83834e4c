"""Builds as the user meets them: without Prefect unless a server is configured or asked for, Ctrl-C, and failures."""

import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pivot
import psutil
import pytest
from pivot.core.errors import ConfigError
from pivot.core.processes import Child
from pivot.flows.engines.server import configured_server, wait_for_server
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import (
    CLI,
    PATIENCE,
    assert_whole,
    begun,
    clean_environment,
    config_of,
    error_lines,
    fingerprint,
)
from pivot.tests.flow_runs import pivot as command

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.timeout(1800)]

NOISE = re.compile(r"Traceback|Warning|WARNING|ERROR|Exception|nanobind|asyncio|prefect", re.IGNORECASE)
STAGES = ("rollout", "label", "export")
CONFIG = config_of(20, rollouts=8, tasks_per_shard=5)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who never heard of Prefect, with a dead proxy."""
    return {"HOME": str(tmp_path / "home"), "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}


def on_a_terminal(arguments: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Run the command line on a terminal; return its status and all that the terminal showed, without its colours."""
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [*CLI, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=clean_environment() | dict(env)
    )
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(screen, 1 << 16):
            shown += chunk
    except OSError:
        pass  # how a terminal says that its last writer is gone
    finally:
        os.close(screen)
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


@pytest.mark.operations
def test_interrupted_and_finished_without_a_server(tmp_path: Path, env: dict[str, str]) -> None:
    root = tmp_path / "store"
    (tmp_path / "run.json").write_text(json.dumps(CONFIG))
    build = ["build", "--config", str(tmp_path / "run.json"), "--out", str(root)]
    run = begun(*build, "--workers", "2", env=env, start_new_session=True)
    while not list((root / ".receipts").rglob("*.json")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.005)
    os.killpg(run.pid, signal.SIGSTOP)  # so that it does not go on while we look
    children = psutil.Process(run.pid).children(recursive=True)
    assert len(children) >= 2  # only workers are running, no server
    assert not [each for each in children if "prefect" in " ".join(each.cmdline())]
    os.killpg(run.pid, signal.SIGINT)  # to the whole process group, as from a terminal
    os.killpg(run.pid, signal.SIGCONT)
    shown, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert shown.strip() == ""
    assert [line for line in errors.splitlines() if " of 160 episodes (" not in line] == [
        "making levels: 160 episodes",
        "rolling out: 160 episodes",
        "interrupted; run the same command again to resume",
    ]
    assert psutil.wait_procs(children, timeout=PATIENCE)[1] == []

    status, screen = on_a_terminal([*build, "--workers", "1"], env)
    assert status == 0, screen
    assert NOISE.search(screen) is None
    for stage in ("making levels", "rolling out", "labelling", "exporting"):
        assert re.search(rf"{stage} .*160/160 +episodes", screen) is not None
    assert "of 4 rollout shards were kept" in screen and f"pivot verify {root}" in screen
    assert_whole(root)
    pivot.build(CONFIG, tmp_path / "plain")
    assert fingerprint(root) == fingerprint(tmp_path / "plain")
    again = command(*build, env=env)
    assert (again.returncode, again.stderr) == (0, "")
    assert "(already complete)" in " ".join(again.stdout.split())


def _completed(records: Path) -> list[tuple[str, str]]:
    """Return id and name of the completed tasks in Prefect's database, if there is one."""
    if not records.exists():
        return []
    with sqlite3.connect(records) as database:
        return database.execute("SELECT id, name FROM task_run WHERE state_type = 'COMPLETED'").fetchall()


def test_a_recorded_build_has_the_bytes_of_a_plain_one(tmp_path: Path, prefect_home: Path, env: dict[str, str]) -> None:
    """Catch a build whose records lack a task, or change a byte; Prefect's temporary server prints nothing."""
    records = prefect_home / "prefect.db"
    before = {*_completed(records)}
    config = config_of(2, rollouts=2)
    (tmp_path / "run.json").write_text(json.dumps(config))
    words = ["build", "--config", tmp_path / "run.json", "--workers", "2", "--prefect"]
    done = command(*words, "--out", tmp_path / "store", env=env | {"PREFECT_HOME": str(prefect_home)})
    assert done.returncode == 0, done.stderr
    assert NOISE.search(done.stdout + done.stderr) is None
    pivot.build(config, tmp_path / "plain")
    assert fingerprint(tmp_path / "store") == fingerprint(tmp_path / "plain")
    tasks = {name for _, name in {*_completed(records)} - before}
    assert {f"{stage} sokoban/{number:05d}" for stage in STAGES for number in range(2)} <= tasks


def test_a_failure_in_a_worker_is_one_line(tmp_path: Path, env: dict[str, str]) -> None:
    root = tmp_path / "store"
    pivot.build(config_of({"sokoban": 2}, rollouts=8, tasks_per_shard=16), root)
    (root / "manifest.json").unlink()
    shutil.rmtree(root / "labels")
    (root / "labels").write_text("in the way")
    failed = command("build", "sokoban", "--tasks", "2", "--workers", "2", "--out", root, env=env)
    (error,) = error_lines(failed)
    assert error.startswith(f"error: cannot write {root}/labels/v1/sokoban/00000.parquet: ")
    assert "a file stands where a folder is needed" in error
    assert failed.stdout.strip() == ""
    expected = ["making levels: 16 episodes", "rolling out: 16 episodes", "labelling: 16 episodes"]
    assert [line for line in failed.stderr.splitlines() if " of 16 episodes (" not in line][:-1] == expected


PROFILES = """
active = "night"
[profiles.night]
PREFECT_API_URL = "http://127.0.0.1:9/api"
[profiles.none]
"""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "http://127.0.0.1:9/api"),
        ({"PREFECT_PROFILE": "none"}, None),
        ({"PREFECT_PROFILE": "gone"}, None),
        ({"PREFECT_API_URL": "http://there/api"}, "http://there/api"),
        ({"PREFECT_PROFILES_PATH": "missing.toml"}, None),
    ],
)
def test_the_configured_server_is_that_of_prefect(
    variables: dict[str, str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    for name, value in ({"PREFECT_HOME": str(tmp_path)} | variables).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "profiles.toml").write_text(PROFILES)
    assert configured_server() == expected
    if "PREFECT_PROFILES_PATH" not in variables:
        from prefect.settings import Settings

        assert Settings().api.url == expected
    (tmp_path / "profiles.toml").write_text("active = [")
    assert configured_server() == variables.get("PREFECT_API_URL")


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    words = ["build", "sokoban", "--tasks", "1", "--rollouts", "1", "--workers", "1", "--out", tmp_path / "store"]
    error = str(error_of(*words))
    assert "no Prefect server answers at http://127.0.0.1:9/api (PREFECT_API_URL)" in error
    assert "prefect server start" in error
    assert not (tmp_path / "store").exists()
    run(*words, "--no-prefect")


def test_the_last_words_of_a_server_that_ended_are_shown() -> None:
    code = "raise SystemExit('database is from the future')"
    process = Child([sys.executable, "-c", code], "the Prefect server", ConfigError, answers=False)
    with pytest.raises(ConfigError, match="the Prefect server ended: database is from the future"):
        wait_for_server("http://127.0.0.1:9/api", 30, process)
    process.end()
    with pytest.raises(ConfigError, match="no Prefect server answers at nonsense"):
        wait_for_server("nonsense")
