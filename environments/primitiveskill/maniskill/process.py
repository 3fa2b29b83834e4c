"""ManiSkill in a process of its own: every call has a deadline, and a process that misses one is ended.

So a run never imports torch, a simulator that hangs or dies costs an error and not the run, and the pictures' driver
cannot take the run along. The process is started with the interpreter of the run; see ``worker.py``.
"""

import json
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

from ....errors import ConfigError, SimulatorError
from ....processes import seconds

START_SECONDS, STEP_SECONDS = "PIVOT_MANISKILL_START_SECONDS", "PIVOT_MANISKILL_STEP_SECONDS"
"""Environment variables of the two deadlines: until ManiSkill is up or has drawn its first picture, and any other."""
INSTALL = "pip install 'pivot-vlm[maniskill]'"
DRIVER = (
    "it draws with Vulkan, on a GPU or with Mesa's lavapipe, version 23 or newer "
    "(Debian 12: apt-get install -t bookworm-backports mesa-vulkan-drivers libvulkan1)"
)
LARGEST_PART = 4_000_000
"""Bytes of an answer or a picture; more is nonsense."""
_LENGTH = struct.Struct("<I")
_ENDING = 5.0
"""Seconds that a process gets to end by itself."""


class ManiSkillProcess:
    """One process with one table."""

    def __init__(self, physics: str, command: Sequence[str] | None = None) -> None:
        """Start the process; ``command`` replaces the one that is started (tests give another one).

        Raises:
            ConfigError: ManiSkill is not installed or cannot be used here, or a deadline is not a number.
            SimulatorError: it did not come up in time, or died.
        """
        self._start_seconds, self._step_seconds = seconds(START_SECONDS, 300), seconds(STEP_SECONDS, 60)
        module = f"{__package__}.worker"
        self._log = TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", module, physics],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,  # an interrupt of the run is the parent's to handle
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._drawn = False
        self._request({"do": "start"}, self._start_seconds)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def load(self, state: str) -> dict[str, Any]:
        """Load a state text; return the scene."""
        return self._request({"do": "load", "state": state}, self._step_seconds)

    def execute(self, primitive: str) -> dict[str, Any]:
        """Execute a primitive; return the scene."""
        return self._request({"do": "execute", "primitive": primitive}, self._step_seconds)

    def draw(self) -> tuple[dict[str, Any], bytes]:
        """Return what is said about the picture, and its pixels. The first picture compiles the shaders."""
        limit = self._step_seconds if self._drawn else self._start_seconds
        about = self._request({"do": "draw"}, limit)
        pixels = self._guarded("draw", monotonic() + limit, limit, self._read_part)
        self._drawn = True
        return about, pixels

    def end(self) -> None:
        """End the process, if need be by force."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(_ENDING)
        self._log.close()

    def _request(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """Send a request and return its answer; whatever else happens ends the process.

        Raises:
            ConfigError: ManiSkill cannot be used on this machine.
            SimulatorError: no answer in time, the process died, or its answer makes no sense.
        """
        what = str(request["do"])
        deadline = monotonic() + limit
        data = json.dumps(request).encode()
        self._guarded(what, deadline, limit, lambda until: self._write(_LENGTH.pack(len(data)) + data, until))
        part = self._guarded(what, deadline, limit, self._read_part)
        try:
            answer = json.loads(part)
        except (ValueError, RecursionError) as error:
            self.end()
            raise SimulatorError(f"ManiSkill answered {part[:60]!r} to {what!r}, expected JSON") from error
        if not isinstance(answer, dict):
            self.end()
            raise SimulatorError(f"ManiSkill answered {str(answer)[:60]!r} to {what!r}, expected an object")
        if "missing" in answer or "failed" in answer:
            self.end()
            raise _reason(what, answer)
        return answer

    def _guarded(self, what: str, deadline: float, limit: float, call: Any) -> Any:
        try:
            return call(deadline)
        except TimeoutError:
            self.end()
            raise SimulatorError(f"ManiSkill did not answer {what!r} within {limit:g} s and was ended") from None
        except OSError as error:
            status, said = self._last_words()
            self.end()
            raise SimulatorError(f"ManiSkill's process ended at {what!r} ({status}): {said or error}") from error

    def _last_words(self) -> tuple[str, str]:
        """Return how the process ended and the last line that it printed."""
        try:
            status = f"status {self._process.wait(1)}"
        except subprocess.TimeoutExpired:
            status = "still running"
        self._log.seek(0)
        lines = self._log.read()[-4000:].decode("utf-8", "replace").split("\n")
        return status, next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        view = memoryview(data)
        while view:
            _wait(pipe, select.POLLOUT, deadline)
            view = view[os.write(pipe, view) :]

    def _read_part(self, deadline: float) -> bytes:
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline))
        if size > LARGEST_PART:
            raise OSError(f"it announced an answer of {size} bytes")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        parts: list[bytes] = []
        while size:
            _wait(pipe, select.POLLIN, deadline)
            part = os.read(pipe, size)
            if not part:
                raise OSError("it closed its pipe")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _wait(pipe: int, event: int, deadline: float) -> None:
    poll = select.poll()  # unlike select(), for any number of open files
    poll.register(pipe, event)
    if not poll.poll(max(deadline - monotonic(), 0.0) * 1000):
        raise TimeoutError


def _reason(what: str, answer: dict[str, Any]) -> Exception:
    """Return the error for what the process says went wrong."""
    said = " ".join(str(answer.get("missing") or answer.get("failed")).split())[:500]
    if "missing" in answer:
        return ConfigError(f"the backend maniskill needs ManiSkill ({said}); install it with: {INSTALL}")
    if what == "start":
        return ConfigError(f"ManiSkill does not start here ({said}); {DRIVER}")
    return SimulatorError(f"ManiSkill failed at {what!r}: {said}")


__all__ = ["START_SECONDS", "STEP_SECONDS", "ManiSkillProcess"]
