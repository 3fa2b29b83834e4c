"""Run a worker on this machine, with the deployments of a file, and by default a Prefect server for it, until Ctrl-C.

Both are children in sessions of their own, so Ctrl-C reaches this process alone: it ends the worker with its flow runs,
then the server. The next start resumes these flow runs. Both children end by themselves when this process is killed.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..processes import Child
from ..storage import open_storage
from .engines.server import FlowServer
from .history import keep_history

POOL = "pivot"
"""The work pool of ``prefect.yaml``."""
LOOPBACK = "127.0.0.1"
LEASE_STORAGE = "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"
"""Setting of a Prefect server: the module that stores its leases."""
ON_DISK = "prefect.server.concurrency.lease_storage.filesystem"
"""Value of ``LEASE_STORAGE``: leases are files in ``PREFECT_HOME``, so their slots are freed also after a restart."""
HEALTH_PORT = "PREFECT_WORKER_WEBSERVER_PORT"
"""Setting of a Prefect worker; if it is set, ``--work`` answers there whether the worker still asks for runs."""
START_SECONDS = 900.0
"""Longest wait for the server, ten seconds on an idle machine; one that ends meanwhile is noticed at once."""
DEPLOY_SECONDS = 900.0
"""Longest time that deploying a file may take; ten seconds on an idle machine."""
_SERVER, _PASSWORD = "PREFECT_SERVER_", "API_AUTH_STRING"
_WORKER = ("worker", "start", "--pool", POOL, "--type", "process")
_LEAVE_SECONDS = 5.0
"""Seconds that the worker may take to end by itself."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The running server and worker."""

    address: str
    """Address of the server's pages."""
    server: Child | None
    """None for a server of the user."""
    worker: Child

    def wait(self) -> None:
        """Wait until an error or Ctrl-C; never return.

        Raises:
            ConfigError: one of the two has ended.
        """
        while True:
            for child, name in ((self.server, "server"), (self.worker, "worker")):
                if child is not None and child.status(1.0) is not None:
                    raise ConfigError(f"the Prefect {name} ended: {child.last_words() or 'it left no message'}")


@contextlib.contextmanager
def serving(file: Path, port: int, slots: int, runs: int | None = None) -> Iterator[Serving]:
    """Run server and worker with the deployments of ``file``; flows start in the folder that holds it.

    Args:
        file: a ``prefect.yaml``.
        port: port of the server, on loopback.
        slots: slots of the limit on model servers, if it does not exist yet.
        runs: runs that the worker has at the same time; None for no limit.

    Raises:
        ConfigError: the port is taken, the server does not start, Prefect refuses the file, or as
            :func:`.keep_history`.
    """
    url = f"http://{LOOPBACK}:{port}/api"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} of {LOOPBACK} cannot be used ({error.strerror}); give another one with --port"
            ) from error
    # The runs must report to this server, not to one from Prefect's settings.
    os.environ["PREFECT_API_URL"] = url
    _share_password()
    keep_history()
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), LOOPBACK)))
    folder = file.resolve().parent
    server = _prefect("server", folder, "server", "start", "--host", LOOPBACK, "--port", str(port))
    worker: Child | None = None
    try:
        FlowServer(url, server).wait(START_SECONDS)
        _deploy(file.resolve(), slots)
        worker = _prefect("worker", folder, *_WORKER, *_limit(runs))
        yield Serving(url.removesuffix("/api"), server, worker)
    finally:
        with _undisturbed():
            if worker is not None:
                _end(worker, url)
            server.end()


@contextlib.contextmanager
def working(file: Path, slots: int, runs: int | None = None) -> Iterator[Serving]:
    """Run the only worker of a server of the user, as :func:`serving` does, with its log on the standard output.

    Interrupted runs are resumed if this ``PREFECT_HOME`` is that of the server, whose leases are there.

    Raises:
        ConfigError: no server is named or answers, it refuses the password, or Prefect refuses the file.
    """
    from prefect.settings import Settings  # noqa: PLC0415 - takes a second

    url = Settings().api.url or ""  # of the environment and Prefect's profile, as its own commands read them
    if not url:
        raise ConfigError(
            "--work: PREFECT_API_URL is not set, expected the address of a Prefect server such as "
            "http://127.0.0.1:4200/api; set it, or start a server here with --serve"
        )
    FlowServer(url, None).wait(patient=True)
    _deploy(file.resolve(), slots, alone=False)
    health = ("--with-healthcheck",) if HEALTH_PORT in os.environ else ()
    worker = _prefect("worker", file.resolve().parent, *_WORKER, *_limit(runs), *health, stdout=None, stderr=None)
    try:
        yield Serving(url.removesuffix("/api"), None, worker)
    finally:
        with _undisturbed():
            _end(worker, url)


def _limit(runs: int | None) -> tuple[str, ...]:
    return () if runs is None else ("--limit", str(runs))


def _share_password() -> None:
    """Give the password of the server to the worker and its runs.

    Raises:
        ConfigError: the two variables contradict each other.
    """
    expected = os.environ.get(f"{_SERVER}{_PASSWORD}")
    if expected and os.environ.setdefault(f"PREFECT_{_PASSWORD}", expected) != expected:
        raise ConfigError(
            f"PREFECT_{_PASSWORD} differs from {_SERVER}{_PASSWORD}, expected the same password for the worker and its "
            f"server; unset PREFECT_{_PASSWORD}"
        )


def _prefect(name: str, folder: Path, *arguments: str, **options: Any) -> Child:
    command = [sys.executable, "-P", "-m", __name__, *arguments]
    env = {LEASE_STORAGE: ON_DISK} | os.environ | {"PREFECT_LOGGING_LEVEL": "INFO"}
    return Child(command, f"the Prefect {name}", ConfigError, answers=False, cwd=folder, env=env, **options)


def _deploy(file: Path, slots: int, *, alone: bool = True) -> None:
    """Create the work pool and the limit if they are missing, and deploy every deployment of the file."""
    command = [sys.executable, "-P", "-m", __name__, "deploy", str(file), str(slots), "serve" if alone else "work"]
    try:
        done = subprocess.run(
            command,
            cwd=file.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEPLOY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{file} was not deployed within {DEPLOY_SECONDS:.0f} s; try again") from None
    if done.returncode:
        message = " ".join((done.stdout + done.stderr).split())[-600:]
        raise ConfigError(f"Prefect does not take {file}: {message or 'it left no message'}")


def _end(worker: Child, url: str) -> None:
    """End a worker and its flow runs, some of which have sessions of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGINT)
    worker.status(_LEAVE_SECONDS)
    worker.end()
    end_flow_runs(url)


def end_flow_runs(url: str) -> None:
    """Kill the processes of flow runs that report to the server at ``url``, also if their worker was killed.

    Without a server they could not report their end, and nobody would notice it. The next start resumes these runs.
    """
    server = f"PREFECT_API_URL={url}".encode()
    for name in filter(str.isdecimal, open_storage(Path("/proc")).entries()):  # empty on systems without this folder
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if server in variables and any(each.startswith(b"PREFECT__FLOW_RUN_ID=") for each in variables):
                os.kill(int(name), signal.SIGKILL)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C while the children are ended, so that none is left."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# The children's side


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


def _make_room(slots: int, mode: str) -> None:
    """Create the work pool and the limit on model servers, unless they exist, and resume runs that were interrupted.

    With a server of the user (``mode`` is "work") runs are resumed only if its leases are here.
    """
    from prefect import get_client  # noqa: PLC0415 - takes seconds, and only this process needs it
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate  # noqa: PLC0415
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound  # noqa: PLC0415
    from prefect.settings import get_current_settings  # noqa: PLC0415

    from .interrupted import recover  # noqa: PLC0415
    from .limits import MODEL_SERVER  # noqa: PLC0415

    with get_client(sync_client=True) as client:
        with contextlib.suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"))
        try:
            client.read_global_concurrency_limit_by_name(MODEL_SERVER)
        except ObjectNotFound:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=MODEL_SERVER, limit=slots))
        if mode == "serve" or (get_current_settings().home / "concurrency_leases").exists():
            recover(client, POOL)


def _run_prefect(arguments: list[str]) -> None:
    """Run Prefect's command line, which ends the process that it runs in."""
    from prefect.cli import app  # noqa: PLC0415

    sys.argv = ["prefect", "--no-prompt", *arguments]
    app()


def _main(what: str, *arguments: str) -> None:
    if what == "deploy":
        file, slots, mode = arguments
        _make_room(int(slots), mode)
        _run_prefect(["deploy", "--all", "--prefect-file", file])
    else:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _run_prefect([what, *arguments])


if __name__ == "__main__":
    _main(*sys.argv[1:])
