"""The nightly deployment of prefect.yaml, from the file to a finished store, against a real server and worker."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pivot
import pytest
import yaml
from pivot.datasets.config import make_config
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.flows.deployments import ON_FAILURE, nightly, tell_failure
from pivot.flows.engines.prefect import NOTE
from pivot.identity import derive_seed
from pivot.tests.flow_runs import CLI, assert_whole, clean_environment, config_of, fingerprint
from pivot.tests.flow_runs import pivot as command
from prefect.cli.deploy._models import PrefectYamlModel

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "prefect.yaml").read_text(encoding="utf-8")
FILE: dict[str, Any] = yaml.safe_load(TEXT)
COMMAND_LINES = [line.removeprefix("#   prefect ") for line in TEXT.splitlines() if line.startswith("#   prefect ")]
"""What the file's head tells to type: create a pool, deploy, start a worker."""

COMMANDS = """
import shlex, sys
from prefect.cli import app

for command in sys.argv[1:]:
    sys.argv = ["prefect", "--no-prompt", *shlex.split(command)]
    try:
        app()
    except SystemExit as end:
        if end.code:
            raise
"""

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.timeout(300)]


def test_prefect_knows_every_key_of_the_file() -> None:
    # Unknown keys are dropped without a word, so what was not read shows as missing.
    read = PrefectYamlModel.model_validate(FILE).model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert read == FILE


def test_the_deployment_builds_the_default_run_every_night() -> None:
    (deployment,) = FILE["deployments"]
    config = make_config(deployment["parameters"]["config"])
    assert {name: run.tasks for name, run in config.environments.items()} == {"sokoban": 180, "frozenlake": 216}
    assert deployment["schedules"] == [{"cron": "0 2 * * *", "timezone": "UTC", "active": True}]
    assert deployment["entrypoint"] == "pivot.flows.deployments.nightly"
    assert (nightly.retries, nightly.timeout_seconds, nightly.flow_run_name) == (2, 12 * 3600, "nightly {out}")


def test_a_failure_starts_the_operators_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tell"
    program.write_text(f'#!/bin/sh\nprintf "%s: %s" "$1" "$2" > {tmp_path}/told\n')
    program.chmod(0o700)
    monkeypatch.setenv(ON_FAILURE, str(program))
    tell_failure(None, SimpleNamespace(name="nightly runs"), SimpleNamespace(message="2 problems found"))
    assert (tmp_path / "told").read_text() == "nightly runs: 2 problems found"
    assert tell_failure in nightly.on_failure_hooks
    assert tell_failure in nightly.on_crashed_hooks


class Server:
    """A Prefect server on loopback, and the command line of Prefect against it."""

    def __init__(self, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/api"
        self.env = clean_environment() | {
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "PREFECT_API_URL": self.url,
        }
        self._log = (home / "server.log").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--port", str(self.port), "--no-ui"],
            env=self.env,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return when the server answers."""
        for _ in range(1200):
            assert self._process.poll() is None, Path(self._log.name).read_text()
            try:
                self.get("health")
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(Path(self._log.name).read_text())

    def stop(self) -> None:
        """End the server and whatever it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def get(self, path: str, body: Any = None) -> Any:
        """Ask the server's API; with a body, post it. While its database is busy it says 503, and is asked again."""
        request = urllib.request.Request(f"{self.url}/{path}", None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        for pause in (0.2, 1.0, 5.0, None):
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                if error.code != 503 or pause is None:
                    raise
                time.sleep(pause)
        return None

    def prefect(self, commands: list[str], cwd: Path) -> str:
        """Run commands of Prefect one after the other, as a shell would, in one process that imports Prefect once."""
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, *commands],
            cwd=cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def server(prefect_home: Path) -> Iterator[Server]:
    """A running server."""
    server = Server(prefect_home)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def test_a_worker_builds_the_store_of_the_scheduled_date(server: Server, tmp_path: Path) -> None:
    (deployment,) = FILE["deployments"]
    for run in deployment["parameters"]["config"]["environments"].values():
        run["tasks"] = 1
    deployment["parameters"]["workers"] = 1
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(FILE))

    create, deploy, work = COMMAND_LINES
    server.prefect([create, deploy], cwd=tmp_path)
    known = server.get("deployments/name/nightly-build/nightly")
    (schedule,) = known["schedules"]
    assert (schedule["active"], schedule["schedule"]["cron"]) == (True, "0 2 * * *")
    assert known["concurrency_limit"] == 1 or known["global_concurrency_limit"]["limit"] == 1
    scheduled = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2026-01-05T02:00:00Z"}}
    run = server.get(f"deployments/{known['id']}/create_flow_run", {"state": scheduled})
    log = server.prefect([f"{work} --run-once"], cwd=tmp_path)  # a worker that does not stay

    after = server.get(f"flow_runs/{run['id']}")
    assert after["name"] == "nightly runs/nightly"
    assert "nanobind" not in log
    state = after["state"]
    assert state["type"] == "COMPLETED", f"{state}\n{log}"
    root = tmp_path / "runs" / "nightly" / "2026-01-05"
    config = Store.open(root).config
    assert config.seed == derive_seed("nightly", "2026-01-05") % 2**32
    assert {name: run.tasks for name, run in config.environments.items()} == {"sokoban": 1, "frozenlake": 1}
    assert_whole(root)
    assert verify_store(root, Silent()).problems == []


def test_a_build_reports_to_the_users_server(server: Server, tmp_path: Path) -> None:
    builds = {"flows": {"name": {"any_": ["build-dataset"]}}}
    before = {run["id"] for run in server.get("flow_runs/filter", builds)}
    arguments = [
        "build",
        "frozenlake",
        "--tasks",
        "1",
        "--rollouts",
        "2",
        "--workers",
        "1",
        "--out",
        tmp_path / "store",
    ]
    done = command(*arguments, env={"PREFECT_API_URL": server.url, "XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    runs = [run for run in server.get("flow_runs/filter", builds) if run["id"] not in before]
    assert [run["state"]["type"] for run in runs] == ["COMPLETED"]
    tasks: list[dict[str, Any]] = []
    for _ in range(100):  # task runs reach the server's database a moment later
        tasks = server.get("task_runs/filter", {"flow_runs": {"id": {"any_": [runs[0]["id"]]}}})
        if len(tasks) == 3 and all(task["state_type"] == "COMPLETED" for task in tasks):
            break
        time.sleep(0.1)
    assert sorted(task["name"] for task in tasks) == [
        f"{stage} frozenlake/00000" for stage in ("export", "label", "rollout")
    ]
    of_this_run = {"key": {"any_": ["pivot-build"]}, "flow_run_id": {"any_": [runs[0]["id"]]}}
    (artifact,) = server.get("artifacts/filter", {"artifacts": of_this_run})
    (row,) = json.loads(artifact["data"])
    assert (row["environment"], row["episodes"]) == ("frozenlake", 2)


def _kill_in_the_middle(arguments: list[str | Path], root: Path, env: dict[str, str]) -> None:
    with subprocess.Popen(
        [*CLI, *map(str, arguments)], env=clean_environment() | env, stderr=subprocess.PIPE, start_new_session=True
    ) as run:
        while not list((root / ".receipts").rglob("*.json")):
            assert run.poll() is None, run.communicate()
            time.sleep(0.005)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


def test_after_a_kill_the_next_run_of_the_store_ends_what_still_runs(server: Server, tmp_path: Path) -> None:
    root, env = tmp_path / "store", {"PREFECT_API_URL": server.url, "XDG_CACHE_HOME": str(tmp_path)}
    build = ["build", "sokoban", "--tasks", "40", "--shard-size", "4", "--workers", "1", "--out", root]
    _kill_in_the_middle(build, root, env)
    killed = json.loads((root / NOTE).read_text())["flow_run"]
    assert server.get(f"flow_runs/{killed}")["state"]["type"] == "RUNNING"  # nobody has told the server
    done = command(*build, env=env)
    assert done.returncode == 0, done.stderr
    assert not (root / NOTE).exists()
    state = server.get(f"flow_runs/{killed}")["state"]
    assert (state["type"], state["message"][:23]) == ("CRASHED", "its process was killed;")
    of_both = {"flow_runs": {"name": {"any_": [f"build {root}"]}}}
    tasks: list[dict[str, Any]] = []
    for _ in range(100):  # states of task runs reach the server's database a moment later
        tasks = server.get("task_runs/filter", of_both)
        if {task["state_type"] for task in tasks} <= {"COMPLETED", "CRASHED"}:
            break
        time.sleep(0.1)
    assert {task["state_type"] for task in tasks} <= {"COMPLETED", "CRASHED"}
    assert sorted(run["state_type"] for run in server.get("flow_runs/filter", of_both)) == ["COMPLETED", "CRASHED"]


FLOW = """
import json, sys, threading
from pivot.flows.engines import local
from pivot.flows.engines.server import quiet_prefect, start_server

quiet_prefect()
start_server().wait()
submit, at_work, most, lock = local.InProcess.submit, 0, 0, threading.Lock()

def counted(pool, call, *arguments):
    global at_work, most
    with lock:
        at_work += 1
        most = max(most, at_work)
    done = submit(pool, call, *arguments)
    with lock:
        at_work -= 1
    return done

local.InProcess.submit = counted

from pivot.flows.deployments import build_dataset
result = build_dataset(json.loads(sys.argv[1]), sys.argv[2], workers=1)
print(json.dumps([most, result["shards"], result["environments"]]))
"""


def test_a_flow_with_one_worker_runs_one_shard_at_a_time(server: Server, tmp_path: Path) -> None:
    """As a deployment runs it: the task runner is Prefect's own, which starts all tasks that it is given."""
    config = config_of({"frozenlake": 8}, rollouts=4)
    program = [sys.executable, "-c", FLOW, json.dumps(config), str(tmp_path / "flow")]
    run = subprocess.run(program, env=server.env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    most, shards, environments = json.loads(run.stdout)
    assert (most, shards) == (1, 8)
    assert environments["frozenlake"]["rejected"] == 0
    pivot.build(config, tmp_path / "plain")
    assert fingerprint(tmp_path / "flow") == fingerprint(tmp_path / "plain")
