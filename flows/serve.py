"""Deploy a file and run a worker for it on this machine, by default with a Prefect server, until Ctrl-C.

Server and worker are ``prefect server start`` and ``prefect worker start`` with the settings that are known to work.
Retries, time limits, concurrency, crashed runs and alarms are Prefect's: see docs/how-to/operations.md.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ..core.errors import ConfigError
from ..core.processes import Child
from ..core.storage import open_storage
from .engines.server import configured_server, wait_for_server
from .metrics import expect_runs

LOOPBACK = "127.0.0.1"
POOL = ("--pool", "pivot", "--type", "process")
"""The work pool of ``prefect.yaml``."""
KNOWN_TO_WORK = {
    # Leases in memory are lost with the server, and their slots stay taken.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_FLOWS_DEFAULT_RETRIES": "2",
    "PREFECT_FLOWS_DEFAULT_RETRY_DELAY_SECONDS": "60",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
}
"""Settings of server, worker and runs; those in the environment win."""
START_SECONDS = 900.0
"""Longest wait for the server, or for deploying a file; ten seconds on an idle machine."""


def serve(file: Path, port: int | None, runs: int | None, ready: Callable[[str], None]) -> NoReturn:
    """Run server and worker with the deployments of ``file`` until Ctrl-C; flows start in the file's folder.

    Args:
        file: a ``prefect.yaml``.
        port: port of the server, on loopback; None for the server of ``PREFECT_API_URL``, with the worker's log here.
        runs: runs that the worker has at the same time; None for no limit.
        ready: gets the address of the server's pages when everything runs.

    Raises:
        ConfigError: the port is taken, no server is named or answers, it refuses the password, Prefect refuses the
            file, or one of the two has ended.
    """
    file, server, worker = file.resolve(), None, None
    url = f"http://{LOOPBACK}:{port}/api" if port is not None else named_server()
    if port is not None:
        _refuse_taken(port)
    if port is not None and "PREFECT_HOME" not in os.environ:
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        os.environ["PREFECT_HOME"] = str(Path(data) / "pivot" / "prefect")
    for name, value in KNOWN_TO_WORK.items():
        os.environ.setdefault(name, value)
    if password := os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):
        os.environ.setdefault("PREFECT_API_AUTH_STRING", password)
    # Runs report to this server, not to one of Prefect's settings, and through no proxy.
    past_proxies = ",".join(filter(None, (os.environ.get("NO_PROXY"), LOOPBACK)))
    os.environ |= {"PREFECT_API_URL": url, "PREFECT_LOGGING_LEVEL": "INFO", "NO_PROXY": past_proxies}
    limit = () if runs is None else ("--limit", str(runs))
    health = ("--with-healthcheck",) if "PREFECT_WORKER_WEBSERVER_PORT" in os.environ else ()
    open_log: dict[str, Any] = {"stdout": None, "stderr": None} if port is None else {}
    try:
        if port is not None:
            server = _prefect("server", file, "start", "--host", LOOPBACK, "--port", str(port))
        wait_for_server(url, START_SECONDS, server)
        _deploy(file)
        worker = _prefect("worker", file, "start", *POOL, *limit, *health, **open_log)
        ready(url.removesuffix("/api"))
        while True:
            for child, name in ((server, "server"), (worker, "worker")):
                if child is not None and child.status(1.0) is not None:
                    raise ConfigError(f"the Prefect {name} ended: {child.last_words() or 'it left no message'}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # no child is left by a second Ctrl-C
        if worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
            worker.status(5.0)  # it may end by itself
            worker.end()
            _end_flow_runs(url)
        if server is not None:
            server.end()


def _refuse_taken(port: int) -> None:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError as error:
        message = f"port {port} of {LOOPBACK} cannot be used ({error.strerror}); give another one with --port"
        raise ConfigError(message) from error


def named_server() -> str:
    """Return the address of the user's Prefect server.

    Raises:
        ConfigError: none is configured.
    """
    if url := configured_server():
        return url
    expected = "expected the address of a Prefect server such as http://127.0.0.1:4200/api"
    raise ConfigError(f"--work: PREFECT_API_URL is not set, {expected}; set it, or start a server here with --serve")


def _prefect(name: str, file: Path, *arguments: str, **options: Any) -> Child:
    command = [sys.executable, "-P", "-m", __name__, name, *arguments]
    return Child(command, f"the Prefect {name}", ConfigError, answers=False, cwd=file.parent, **options)


def _deploy(file: Path) -> None:
    """Create the work pool, unless it exists, and deploy every deployment of the file."""
    pool = ("work-pool", "create", "--type", "process", "pivot")
    for words in (pool, ("deploy", "--all", "--prefect-file", str(file))):
        command = [sys.executable, "-P", "-m", "prefect", "--no-prompt", *words]
        options: dict[str, Any] = {"cwd": file.parent, "stdin": subprocess.DEVNULL, "timeout": START_SECONDS}
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        if done.returncode and words[0] == "deploy":
            message = " ".join((done.stdout + done.stderr).split())[-600:]
            raise ConfigError(f"Prefect does not take {file}: {message or 'it left no message'}")
    deployments = yaml.safe_load(file.read_text(encoding="utf-8")).get("deployments") or []
    expect_runs([each["name"] for each in deployments if each.get("schedules") or each.get("schedule")])


def _end_flow_runs(url: str) -> None:
    """End the processes of flow runs of an ending server; they run in sessions of their own."""
    server = f"PREFECT_API_URL={url}".encode()
    for name in filter(str.isdecimal, open_storage(Path("/proc")).entries()):  # empty on systems without this folder
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if server in variables and any(each.startswith(b"PREFECT__FLOW_RUN_ID=") for each in variables):
                os.kill(int(name), signal.SIGKILL)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":  # a child, which ends when this process is gone
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from prefect.cli import app

    sys.argv = ["prefect", "--no-prompt", *sys.argv[1:]]
    app()
