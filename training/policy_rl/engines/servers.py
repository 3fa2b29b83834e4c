"""vLLM servers of a run: processes on this machine that start and end with it.

A restart is the one way to send all weights that is correct for every model: reloading weights in a running vLLM
silently keeps the old output head of models with tied embeddings, and its caches of prefixes, pictures and encoded
pictures outlive the weights. A new process has neither problem; its start takes about half a minute.
"""

import contextlib
import os
import shlex
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ....core.errors import ServerGoneError
from ....core.storage import open_storage

LOOPBACK = "127.0.0.1"
"""Address at which the servers listen."""
NAME = "policy"
"""Served name of the trained model."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
START_SECONDS = 900.0
"""Time limit of a start, which takes half a minute on an idle machine and five minutes on a busy one."""
END_SECONDS = 30.0
LOG_TAIL = 1500
"""Characters of a server's log in the message that it did not start."""


def server_words(command: str, model: Sequence[str], port: int, name: str = NAME) -> list[str]:
    """Return the command line of one server as words; ``model`` is the model and its options.

    Log-probabilities are those of the distribution that tokens are sampled from, without banned tokens; the
    checkpoint's own sampling defaults are not used.
    """
    words = [*shlex.split(command), "--model", *model, "--served-model-name", name]
    words += ["--host", LOOPBACK, "--port", str(port)]
    return [*words, "--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


class Servers:
    """The server processes, one per device; none runs before the first :meth:`restart`."""

    def __init__(self, command: str, devices: Sequence[str], logs: Path) -> None:
        """Configure the servers; none is started.

        Args:
            command: command that starts a server, such as ``vllm serve --dtype bfloat16``.
            devices: CUDA_VISIBLE_DEVICES of each server; if empty, one server sees every GPU.
            logs: folder for the output of the servers.
        """
        self._command, self._logs = command, open_storage(logs)
        self._devices: list[str | None] = [*devices] or [None]
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes], str]] = []

    @property
    def urls(self) -> list[str]:
        """Base addresses of the running servers."""
        return [f"{url}/v1" for _, _, url in self._running]

    def restart(self, model: Sequence[str], name: str = NAME, variables: Mapping[str, str] | None = None) -> None:
        """End the running servers and start all servers.

        Args:
            model: folder or hub id of the model, and further words of the command line.
            name: served name of the model.
            variables: environment variables of the servers.

        Raises:
            ServerGoneError: a server does not start; the message quotes its log.
        """
        self.close()
        for number, device in enumerate(self._devices):
            port = free_port()
            self._logs.write_bytes(f"{number}.log", b"")
            log = self._logs.local_path(f"{number}.log").open("wb")
            chosen = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
            try:
                process = subprocess.Popen(
                    server_words(self._command, model, port, name),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **OFFLINE, **chosen, **(variables or {})},
                    cwd=self._logs.local_path(),  # not a folder whose subfolders Python would import as packages
                    start_new_session=True,
                )
            except OSError as error:
                log.close()
                raise ServerGoneError(
                    f"cannot start a server with {self._command!r}: {error.strerror}; give the command that starts "
                    "vLLM's OpenAI server on this machine with --server-command"
                ) from error
            self._running.append((process, log, f"http://{LOOPBACK}:{port}"))
        for number, (process, _, url) in enumerate(self._running):
            self._wait(process, url, self._logs.local_path(f"{number}.log"))

    def _wait(self, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/health", timeout=5).close()  # noqa: S310 - our own server
                return
            time.sleep(0.5)
        words = log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]
        self.close()
        raise ServerGoneError(f"the vLLM server did not start; see {log}, which ends with:\n{words}")

    def close(self) -> None:
        """End all servers and the processes that they started."""
        for process, log, _ in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 15)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
            log.close()
        self._running = []
