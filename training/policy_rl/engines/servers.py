"""vLLM servers of this run: processes on this machine that come and go with it.

A restart is the one way of handing over all weights that is right for every model: reloading them in a running vLLM
leaves the output head of models with tied embeddings as it was, without a word, and its caches of prefixes, pictures
and encoded pictures outlive the weights that filled them. A new process has none. It costs its start, about half a
minute. Other ways are in :mod:`.hand_over`.
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

from ....errors import ServerGoneError
from ....storage import open_storage

LOOPBACK = "127.0.0.1"
"""Where they listen."""
NAME = "policy"
"""Of the model on the servers."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
START_SECONDS = 900.0
"""Half a minute on an idle machine; five on a crowded one."""
END_SECONDS = 30.0
LAST_WORDS = 1500
"""Characters of a server's log that are told when it does not start."""


def server_words(command: str, model: Sequence[str], port: int, name: str = NAME) -> list[str]:
    """Return the command line of one server, word by word; ``model`` is what it serves, and options of that.

    Log-probabilities are those of the distribution that tokens are drawn from, without the tokens that are banned from
    it; the checkpoint's own sampling defaults are left alone.
    """
    words = [*shlex.split(command), "--model", *model, "--served-model-name", name]
    words += ["--host", LOOPBACK, "--port", str(port)]
    return [*words, "--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"]


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


class Servers:
    """The processes, one for each device; none runs before the first :meth:`restart`."""

    def __init__(self, command: str, devices: Sequence[str], logs: Path) -> None:
        """Name the servers.

        Args:
            command: what starts one, such as ``vllm serve --dtype bfloat16``.
            devices: of each server, what CUDA_VISIBLE_DEVICES says in it; one server on whatever there is if empty.
            logs: folder for what they print.
        """
        self._command, self._logs = command, open_storage(logs)
        self._devices: list[str | None] = [*devices] or [None]
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes], str]] = []

    @property
    def urls(self) -> list[str]:
        """Base addresses of those that run."""
        return [f"{url}/v1" for _, _, url in self._running]

    def restart(self, model: Sequence[str], name: str = NAME, variables: Mapping[str, str] | None = None) -> None:
        """End the servers that run and start all of them.

        Args:
            model: folder or hub id of what they serve, and further words of the command line.
            name: what they call it.
            variables: of their environment.

        Raises:
            ServerGoneError: one does not come up; the message quotes its log.
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
                    cwd=self._logs.local_path(),  # away from folders that Python would take for packages
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
        words = log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:]
        self.close()
        raise ServerGoneError(f"the vLLM server did not start; see {log}, whose last words are:\n{words}")

    def close(self) -> None:
        """End all servers, and whatever they started."""
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
