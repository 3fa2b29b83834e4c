"""Runs of the pipeline for tests: bytes of a store, and the command line in a separate process."""

import contextlib
import hashlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
from pivot.datasets.store.store import Store

MAIN = "from pivot.__main__ import main; main()"
CLI = [sys.executable, "-c", MAIN]
"""The ``pivot`` command of this interpreter."""

PATIENCE = 600.0
"""Seconds after which a test gives up waiting: far more than needed, also on a slow or busy machine."""

FREE_FOLDERS = ("calls", ".receipts", ".tmp", ".commit", ".lock", "manifest.json", "pivot.duckdb", ".probe")
"""Files that may differ between equal runs, because they hold latencies or digests of these."""


def config_of(tasks: int | Mapping[str, int] = 2, **fields: Any) -> dict[str, Any]:
    """Return the config of a small run: one environment with this number of tasks, or several by name."""
    counts = {"sokoban": tasks} if isinstance(tasks, int) else tasks
    runs = {name: {"tasks": count, "settings": {}} for name, count in counts.items()}
    return {"environments": runs, "rollouts": 4, "tasks_per_shard": 1} | fields


def free_port() -> int:
    """Return a free port that is not given to another test's server before this one has started."""
    for port in random.Random().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port was found")


class Handler(BaseHTTPRequestHandler):
    """Answers a request of any method with :meth:`answer`, and logs nothing."""

    def answer(self) -> None:
        """Read the request and call :meth:`reply`."""
        raise NotImplementedError

    def reply(self, status: int, data: bytes, head: Mapping[str, str] = MappingProxyType({})) -> None:
        """Send a response."""
        self.send_response(status)
        for name, value in {**head, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def listening(handler: type[Handler]) -> Iterator[str]:
    """Serve on this machine; yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def files_of(root: Path) -> list[str]:
    """Return the relative paths of all files of a store."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def fingerprint(root: Path) -> dict[str, str]:
    """Return the SHA-256 by path of all files with guaranteed bytes."""
    kept = [name for name in files_of(root) if name.split("/")[0] not in FREE_FOLDERS]
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in kept}


def assert_nothing_is_torn(root: Path) -> None:
    """Check that every file with a final name is complete, at any moment of a run."""
    for name in files_of(root):
        if name.endswith(".parquet") and not name.startswith((".tmp/", ".commit/.tmp/")):
            pq.read_table(root / name)


def assert_whole(root: Path) -> None:
    """Check that the manifest lists exactly the files of the store, with their digests."""
    store = Store.open(root)
    manifest = store.manifest()
    assert {name: store.storage.record(name) for name in manifest} == manifest
    own = {name for name in files_of(root) if not name.startswith(".")} - {"manifest.json", "pivot.duckdb"}
    assert own == set(manifest)


def python(
    code: str, *arguments: object, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a script with arguments in a separate process, without a terminal."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=clean_environment() | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


pivot = partial(python, MAIN)
"""Run the command line in a separate process, without a terminal."""


def begun(*arguments: object, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start the command line in a separate process, and do not wait for its end."""
    return subprocess.Popen(
        [*CLI, *map(str, arguments)],
        env=clean_environment() | dict(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def clean_environment() -> dict[str, str]:
    """Return this process's variables without variables that affect Prefect or the output."""
    dropped = ("PREFECT_", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def error_lines(run: subprocess.CompletedProcess[str]) -> Sequence[str]:
    """Return the error lines of a failed run; check for status 1 and no traceback."""
    assert run.returncode in (1, 2), run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    return [line for line in run.stderr.splitlines() if line.startswith("error: ")]
