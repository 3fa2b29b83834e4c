"""Child processes under guard: what simulators, rasterisers and servers of ours have in common.

A :class:`Child` runs in a session of its own, so that an interrupt of the run is its parent's to handle, and is ended
together with all that it started. It reads requests from its standard input and answers on its standard output, in
bytes or in parts with their length before them, each with a deadline; what it prints to its standard error goes to a
log, whose last line errors quote. Its standard input closes when the parent is gone, however that came to its end.
"""

import os
import select
import signal
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from time import monotonic
from typing import Any, BinaryIO

from .errors import ConfigError

LARGEST_PART = 4_000_000
"""Bytes of a part that a child may send; more is nonsense."""
_LENGTH = struct.Struct("<I")
_ENDING = 5.0
"""Seconds until the system has cleared away a killed process."""


def seconds(name: str, default: float) -> float:
    """Return a deadline from its environment variable.

    Raises:
        ConfigError: the value is not a positive number.
    """
    text = os.environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ConfigError(f"{name}: found {text!r}, expected a positive number of seconds; set another value")
    return value


class Child:
    """A child process; see the module docstring. For one thread at a time."""

    def __init__(
        self, command: Sequence[str], name: str, error: type[Exception], *, answers: bool = True, **options: Any
    ) -> None:
        """Start ``command``.

        Args:
            command: program and arguments.
            name: what errors call the process.
            error: what :meth:`guard` raises, made of one message.
            answers: whether anybody reads the standard output; otherwise that goes to the log, too.
            options: of ``subprocess.Popen``, such as ``env``, ``pass_fds``, or limits in ``preexec_fn``.
        """
        self._name, self._error = name, error
        self._log = TemporaryFile()  # noqa: SIM115 - lives as long as the process
        standard: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE if answers else self._log,
            "stderr": self._log,
            "bufsize": 0,
            "start_new_session": True,
        }
        process: Any = subprocess.Popen(command, **standard | options)
        self._process: subprocess.Popen[bytes] = process
        os.set_blocking(self.requests, False)

    @property
    def pid(self) -> int:
        """Process id, and that of the process group."""
        return self._process.pid

    @property
    def requests(self) -> int:
        """Descriptor of the pipe to its standard input."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def status(self, patience: float = 0.0) -> int | None:
        """Wait for the process, and return its exit status, negative for a signal; None while it runs."""
        try:
            return self._process.wait(patience) if patience else self._process.poll()
        except subprocess.TimeoutExpired:
            return None

    def last_words(self) -> str:
        """Return the last non-empty line of the log, or an empty text; also empty once the process was ended."""
        if self._log.closed:
            return ""
        self._log.seek(0)
        lines = self._log.read()[-4000:].decode("utf-8", "replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    def end(self) -> None:
        """Kill the process and all processes that it started; calling it again is harmless."""
        if self._log.closed:
            return
        with suppress(ProcessLookupError, PermissionError):  # macOS: of a group whose members are all dead
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a driver may still use it; the system then ends it later
            self._process.wait(_ENDING)
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def forget(self) -> None:
        """After a fork, let go of the parent's process without touching it."""
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()
        self._process.returncode = 0  # not our child: subprocess must neither wait nor warn

    def has_spoken(self) -> bool:
        """Return whether unread output, or the end of the output, is available."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    @contextmanager
    def guard(self, what: str, limit: float) -> Iterator[float]:
        """Give a deadline in ``limit`` seconds for what is read and written meanwhile; any failure ends the process.

        Raises:
            Exception: of the type given to the constructor: no answer in time, or the process ended or broke off.
        """
        try:
            yield monotonic() + limit
        except TimeoutError:
            self.end()
            raise self._error(f"{self._name} did not answer {what!r} within {limit:g} s and was ended") from None
        except OSError as error:
            status = self.status(1.0)
            said, how = self.last_words(), "still running" if status is None else f"status {status}"
            self.end()
            raise self._error(f"{self._name}'s process ended at {what!r} ({how}): {said or error}") from error
        except BaseException:
            self.end()  # half an answer may be in the pipe
            raise

    def write(self, data: bytes, deadline: float) -> None:
        """Write bytes; ``deadline`` is a time of the monotonic clock, here and below.

        Raises:
            TimeoutError: not all were taken in time.
            OSError: the process has closed its standard input.
        """
        view = memoryview(data)
        while view:
            _wait(self._process.stdin, select.POLLOUT, deadline)
            view = view[os.write(self.requests, view) :]

    def read(self, size: int, deadline: float) -> bytes:
        """Return so many bytes of the standard output.

        Raises:
            TimeoutError: they did not come in time.
            OSError: the process has closed its standard output.
        """
        data = bytearray()
        while len(data) < size:
            part = os.read(_wait(self._process.stdout, select.POLLIN, deadline), size - len(data))
            if not part:
                raise BrokenPipeError("it closed its pipe")
            data += part
        return bytes(data)

    def write_part(self, part: bytes, deadline: float) -> None:
        """Write a part, its length before it; see :meth:`write`."""
        self.write(_LENGTH.pack(len(part)) + part, deadline)

    def read_part(self, deadline: float) -> bytes:
        """Return the next part; see :meth:`read`. A length that cannot be is an error of the constructor's type."""
        (size,) = _LENGTH.unpack(self.read(_LENGTH.size, deadline))
        if size > LARGEST_PART:
            raise self._error(f"{self._name} announced an answer of {size} bytes")
        return self.read(size, deadline)


def read_part(stream: BinaryIO) -> bytes | None:
    """Return the next part, None at the end of the stream; for the child's side."""
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


def write_part(stream: BinaryIO, part: bytes) -> None:
    """Write a part; for the child's side."""
    stream.write(_LENGTH.pack(len(part)) + part)
    stream.flush()


def _wait(pipe: Any, event: int, deadline: float) -> int:
    """Return the pipe's descriptor when it can be read or written."""
    if pipe.closed:
        raise BrokenPipeError("it was ended before")
    poll = select.poll()  # unlike select(), for any number of open files
    poll.register(pipe, event)
    if not poll.poll(max(deadline - monotonic(), 0.0) * 1000):
        raise TimeoutError
    return pipe.fileno()


__all__ = ["Child", "read_part", "seconds", "write_part"]
