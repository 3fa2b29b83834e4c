"""The flow engine as the user meets it: nothing of it on the screen, Ctrl-C, failures, and the user's own server."""

import json
import os
import pty
import re
import shlex
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
from pivot.core.errors import ConfigError, EngineError
from pivot.core.processes import Child
from pivot.core.progress import Silent
from pivot.datasets.store.config import make_config
from pivot.flows.engines.local import InProcess
from pivot.flows.engines.server import FlowServer, quiet_prefect
from pivot.tests.flow_runs import CLI, PATIENCE, assert_whole, clean_environment, config_of, error_lines, fingerprint
from pivot.tests.flow_runs import pivot as command

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.timeout(1800)]

NOISE = re.compile(r"Traceback|Warning|WARNING|ERROR|Exception|nanobind|asyncio|prefect", re.IGNORECASE)
STAGES = ("rollout", "label", "export")
CONFIG = config_of(20, rollouts=8, tasks_per_shard=5)


@pytest.fixture(scope="module")
def env(prefect_home: Path) -> dict[str, str]:
    """One cache folder for all runs, and a dead proxy."""
    cache = str(prefect_home.parents[1])
    return {"XDG_CACHE_HOME": cache, "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}


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


def events_in(prefect_home: Path) -> int:
    """Number of events that a server has stored."""
    if not (prefect_home / "prefect.db").exists():
        return 0
    with sqlite3.connect(prefect_home / "prefect.db") as records:
        return records.execute("SELECT count(*) FROM events").fetchone()[0]


@pytest.mark.operations
def test_interrupted_and_finished_with_nothing_of_the_engine_on_the_screen(
    tmp_path: Path, prefect_home: Path, env: dict[str, str]
) -> None:
    events = events_in(prefect_home)  # of tests before this one
    root = tmp_path / "store"
    (tmp_path / "run.json").write_text(json.dumps(CONFIG))
    build = ["build", "--config", str(tmp_path / "run.json"), "--out", str(root)]
    run = subprocess.Popen(
        [*CLI, *build, "--workers", "2"],
        env=clean_environment() | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list((root / ".receipts").rglob("*.json")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.005)
    os.killpg(run.pid, signal.SIGSTOP)  # so that it does not go on while we look
    children = psutil.Process(run.pid).children(recursive=True)
    assert len(children) >= 3  # two workers and the engine's server
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does, to the whole group
    os.killpg(run.pid, signal.SIGCONT)
    shown, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert shown.strip() == ""
    first, *others = [line for line in errors.splitlines() if " of 160 episodes (" not in line]
    assert first.startswith("starting the flow engine")
    assert others == [
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
    assert "of 4 rollout shards were kept" in screen
    assert f"pivot verify {root}" in screen
    assert_whole(root)
    pivot.build(CONFIG, tmp_path / "plain")
    assert fingerprint(root) == fingerprint(tmp_path / "plain")

    with sqlite3.connect(prefect_home / "prefect.db") as records:
        tasks = records.execute("SELECT name FROM task_run WHERE state_type = 'COMPLETED'").fetchall()
        assert {f"{stage} sokoban/{number:05d}" for stage in STAGES for number in range(4)} <= {
            name for (name,) in tasks
        }
    assert events_in(prefect_home) == events

    again = command(*build, env=env)
    assert again.returncode == 0
    assert "(already complete)" in " ".join(again.stdout.split())
    assert again.stderr == "", "the flow engine does not start"


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
    assert [line for line in failed.stderr.splitlines() if " of 16 episodes (" not in line][1:-1] == [
        "making levels: 16 episodes",
        "rolling out: 16 episodes",
        "labelling: 16 episodes",
    ]


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    place = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    failed = command("build", "sokoban", "--workers", "1", "--out", tmp_path / "store", env=env | place)
    (error,) = error_lines(failed)
    assert "no Prefect server answers at http://127.0.0.1:9/api (PREFECT_API_URL)" in error
    assert "prefect server start" in error
    with pytest.raises(ConfigError, match="no Prefect server answers at nonsense"):
        FlowServer("nonsense", None).wait()


def test_records_that_cannot_be_written_are_told_in_a_line(prefect_home: Path, tmp_path: Path) -> None:
    cache = shutil.copytree(prefect_home.parents[1], tmp_path / "cache")
    words = [*CLI, "build", "sokoban", "--tasks", "2", "--workers", "1", "--out", str(tmp_path / "store")]
    failed = subprocess.run(
        ["bash", "-c", f"ulimit -f 200; exec {shlex.join(words)}"],
        env=clean_environment() | {"XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert failed.returncode == 1
    (error,) = error_lines(failed)
    assert re.search(r"the flow engine .*PREFECT_HOME=.*(has room|run the same command again)", error)


# The server of a run


def serving(code: str) -> Child:
    return Child([sys.executable, "-c", code], "the flow engine", ConfigError, answers=False)


def test_a_server_that_ends_at_once_says_its_last_words() -> None:
    process = serving("raise SystemExit('database is from the future')")
    assert process.status(30) == 1
    words = "ended at once: database is from the future; see that PREFECT_HOME"
    with pytest.raises(EngineError, match=words):
        FlowServer("http://127.0.0.1:9/api", process).wait()
    process.end()


@pytest.mark.parametrize("line", ['  File "/venv/sqlalch', "  <no Python frame>", "Current thread 0x00007f (most", ""])
def test_a_server_whose_log_ends_in_a_stack_names_the_disk(line: str) -> None:
    process = serving(f"import sys; sys.exit('Fatal Python error\\n' + {line!r} if {line!r} else 1)")
    assert process.status(30) == 1
    words = r"ended at once: it left no message, as on a full disk or at a limit of file sizes \(ulimit -f\); see that"
    with pytest.raises(EngineError, match=words):
        FlowServer("http://127.0.0.1:9/api", process).wait()
    process.end()


def test_a_server_that_never_gets_ready_is_given_up() -> None:
    process = serving("import time; time.sleep(60)")
    with pytest.raises(EngineError, match=r"does not answer after 0 s: it left no message;"):
        FlowServer("http://127.0.0.1:9/api", process).wait(limit=0.2)
    process.end()


@pytest.fixture
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a user who never heard of Prefect, restored afterwards."""
    for name in list(os.environ):
        if name.startswith(("PREFECT_", "XDG_CACHE")) or name == "DO_NOT_TRACK":
            monkeypatch.delenv(name)
    for name in ("PREFECT_HOME", "DO_NOT_TRACK", "PREFECT_LOGGING_LEVEL", "PREFECT_SERVER_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "true")
    return monkeypatch


def test_records_go_where_they_can_be_kept(tmp_path: Path, clean_settings: pytest.MonkeyPatch) -> None:
    clean_settings.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    quiet_prefect()
    home = Path(os.environ["PREFECT_HOME"])
    assert home.parent == tmp_path / "cache" / "pivot"
    assert home.is_dir()
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "true"  # what the user set stays

    (tmp_path / "file").write_text("no folder")
    clean_settings.delenv("PREFECT_HOME")
    clean_settings.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    clean_settings.setattr("tempfile.tempdir", str(tmp_path))
    quiet_prefect()
    assert Path(os.environ["PREFECT_HOME"]).parent == tmp_path

    clean_settings.delenv("PREFECT_HOME")
    clean_settings.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="set PREFECT_HOME to a folder you may write to"):
        quiet_prefect()


@pytest.mark.parametrize("private", [True, False])
def test_only_a_server_that_somebody_reads_gets_heartbeats(
    private: bool, tmp_path: Path, clean_settings: pytest.MonkeyPatch
) -> None:
    quiet_prefect()
    from pivot.flows import deployments
    from prefect.settings import get_current_settings

    frequencies: list[int | None] = []

    def run(*_: object) -> None:
        frequencies.append(get_current_settings().flows.heartbeat_frequency)
        raise ConfigError("far enough")

    clean_settings.setattr(deployments, "is_private", lambda: private)
    clean_settings.setattr(deployments.build_dataset, "with_options", lambda **_: run)
    with pytest.raises(ConfigError, match="far enough"):
        deployments.run_in_process(make_config(CONFIG), tmp_path, InProcess(), Silent())
    assert [each is None for each in frequencies] == [private]
