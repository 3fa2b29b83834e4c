"""A Prefect server with a password, on SQLite or Postgres, with the settings of deploy/compose/compose.yaml."""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from pivot.tests.flow_runs import CLI, clean_environment, free_port

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docs/deploy/compose/compose.yaml").read_text(encoding="utf-8"))
PASSWORD = "correcthorse"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
PATIENCE = 600.0
"""Seconds until a server, a worker or a run that is not ready is a failure; each takes 20 s on an idle machine."""


def until(what: Callable[[], Any], process: subprocess.Popen[Any] | None = None) -> Any:
    """Return the first result that is true."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            if result := what():
                return result
        assert process is None or process.poll() is None, "it ended"
        assert time.monotonic() < deadline
        time.sleep(0.3)


def environment_of(service: str, **addresses: str) -> dict[str, str]:
    """Return the environment of a service of the compose file, with the passwords and addresses of this test."""

    def substituted(value: str) -> str:
        value = re.sub(r"\$\{\w*PASSWORD:\?[^}]*\}", PASSWORD, value)
        value = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        for name, address in addresses.items():
            value = value.replace(name.replace("_", ":"), address)
        return value

    return {name: substituted(str(value)) for name, value in COMPOSE["services"][service]["environment"].items()}


class Postgres:
    """A database server in its own folder, run as user `postgres` because it refuses root."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pivot-postgres-", dir="/tmp"))
        self.port = free_port()
        shutil.chown(self.folder, "postgres", "postgres")
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        shutil.chown(secret, "postgres")
        initdb = ["initdb", "-D", f"{self.folder}/data", "-U", "prefect", "-A", "scram-sha-256", f"--pwfile={secret}"]
        subprocess.run(self._as_user(*initdb), check=True, capture_output=True, cwd=self.folder)
        listen = ["-c", "listen_addresses=127.0.0.1", "-p", str(self.port), "-k", str(self.folder)]
        self.process = subprocess.Popen(
            self._as_user("postgres", "-D", f"{self.folder}/data", *listen),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: self.run("pg_isready").returncode == 0, self.process)
        self.run("psql", "--command", "create database prefect", database="postgres", check=True)

    @staticmethod
    def _as_user(*command: str) -> list[str]:
        return (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]
            if os.getuid() == 0
            else [*command]
        )

    def run(
        self, *command: str | Path, database: str = "prefect", check: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a client program of Postgres."""
        where = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "prefect", "PGPASSWORD": PASSWORD}
        env = os.environ | where | {"PGDATABASE": database}
        return subprocess.run([*map(str, command)], env=env, capture_output=True, check=check, cwd=self.folder)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.folder)


class PrefectApi:
    """The API of a Prefect server."""

    url: str
    authorization: Mapping[str, str] = {}
    busy: Container[int] = (503,)
    """Answers after which a request is repeated."""

    def get(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Send a GET, or a POST with a body; repeat it while the server is busy."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.authorization}
        request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        for pause in (0.2, 1.0, 5.0, 15.0, 30.0, None):
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                    return json.loads(response.read() or "null")
            except urllib.error.HTTPError as error:
                assert error.code in self.busy and pause is not None, error.read()
                time.sleep(pause)
        return None

    def deployment(self, name: str) -> dict[str, Any]:
        """Return the server's record of a deployment."""
        (deployment,) = self.get("deployments/filter", {"deployments": {"name": {"any_": [name]}}})
        return deployment

    def start(self, name: str, **parameters: Any) -> str:
        """Trigger a run of a deployment, as the button of its page does; return its id."""
        deployment = self.deployment(name)
        body = {"state": {"type": "SCHEDULED"}, "parameters": deployment["parameters"] | parameters}
        return self.get(f"deployments/{deployment['id']}/create_flow_run", body)["id"]

    def until(self, run: str, *states: str) -> dict[str, Any]:
        """Wait for a flow run to reach one of the states, by default its end, and return it."""
        deadline = time.monotonic() + PATIENCE
        while (read := self.get(f"flow_runs/{run}"))["state_type"] not in (states or FINAL):
            assert time.monotonic() < deadline, f"{read['state']}\n{self.log(run)}"
            time.sleep(0.3)
        return read

    def log(self, run: str) -> str:
        """Return the log of a flow run."""
        lines = self.get("logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC"})
        return "\n".join(line["message"] for line in lines)


def basic(password: str) -> dict[str, str]:
    """Return the header of a user and password."""
    return {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"} if password else {}


@dataclass
class OwnServer(PrefectApi):
    """`prefect server start` with the settings of the compose file, and `pivot deploy --work` for it."""

    folder: Path
    postgres: Postgres | None
    port: int = field(default_factory=free_port)
    health: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)
    authorization = basic(f"admin:{PASSWORD}")
    busy = range(500, 600)

    @property
    def url(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return f"http://127.0.0.1:{self.port}/api"

    def _environment(self, service: str) -> dict[str, str]:
        (self.folder / "work").mkdir(exist_ok=True)
        database = f"127.0.0.1:{self.postgres.port}" if self.postgres else ""
        env = environment_of(service, postgres_5432=database, server_4200=f"127.0.0.1:{self.port}")
        if self.postgres is None:
            env.pop("PREFECT_SERVER_DATABASE_CONNECTION_URL", None)
        quick = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
        shared = {"PREFECT_HOME": str(self.folder / "prefect"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return clean_environment() | env | quick | shared | {"PREFECT_WORKER_WEBSERVER_PORT": str(self.health)}

    def start_server(self) -> subprocess.Popen[Any]:
        command = [sys.executable, *f"-P -m prefect server start --host 127.0.0.1 --port {self.port}".split()]
        process = self._popen(command, "server")
        until(lambda: self.status("", "health") == 200, process)
        return process

    def start_worker(self, password: str = f"admin:{PASSWORD}") -> subprocess.Popen[Any]:
        return self._popen([*CLI, "deploy", "--work"], "worker", PREFECT_API_AUTH_STRING=password)

    def _popen(self, command: list[str], service: str, **env: str) -> subprocess.Popen[Any]:
        env = self._environment(service) | env
        with (self.folder / f"{service}.log").open("a") as log:
            process = subprocess.Popen(command, env=env, cwd=self.folder / "work", stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def printed(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()

    def wait_for_worker(self, process: subprocess.Popen[Any]) -> None:
        """Wait until the worker's health check reports that it polls for runs."""

        def answers() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/health", timeout=5) as response:
                return response.status == 200

        until(answers, process)

    def status(self, password: str, path: str = "admin/version") -> int:
        """Return what the server answers to a request with this password."""
        request = urllib.request.Request(f"{self.url}/{path}", headers=basic(password))
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def end(self) -> None:
        """End all running processes with their children."""
        for process in self.processes:
            kill(process)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process and its children, as a power cut would."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait(60)


@contextlib.contextmanager
def own_server(folder: Path, *, with_postgres: bool) -> Iterator[OwnServer]:
    """Run a server until the end of the block."""
    postgres = Postgres() if with_postgres else None
    server = OwnServer(folder, postgres)
    try:
        server.start_server()
        yield server
    finally:
        server.end()
        if postgres:
            postgres.end()
