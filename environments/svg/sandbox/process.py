"""One worker process as its parent sees it: started when needed, asked, replaced (spec section 7).

What a document comes to is decided by the document alone. Processor time is what counts against it, and the worker's
kernel counts it. The wall clock only tells that something is wrong with the machine: a document that gets no answer, or
whose worker is killed from outside, is tried again in a fresh worker, and if that fails too there is no outcome but a
:class:`~pivot.errors.SimulatorError`, which leaves the episode owed. Running out of memory or dying counts only in a
worker that has drawn nothing else. A worker that may not be what it was is replaced; the next one starts at once, in
the background, so that the next document finds it ready.
"""

import contextlib
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import Self

from ....errors import SimulatorError
from .raster import SIDE, Outcome, Raster, refusal, rgb

MEMORY_BYTES = 768 * 1024 * 1024
"""Address space of a worker."""
CPU_SECONDS = 0.8
"""Processor time of a document; what an icon takes a hundred times over. Independent of how busy the machine is."""
WALL_SECONDS = 60.0
"""Wall clock of a document: seventy times its processor time, for a machine as overloaded as that."""
START_SECONDS = 60.0
"""Wall clock for a worker to get ready; normally a third of a second."""
ATTEMPTS = 2
"""Workers that have to fall silent over a document before it is given up."""

_HEADER = struct.Struct("<BBQ")
_LENGTH = struct.Struct("<Q")
_STATUSES = ("ok", "not_svg", "forbidden", "memory", "render_error")  # as in worker.py
_PICTURE_BYTES = SIDE * SIDE * 4
_MAX_TEXT = 4096
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sandbox.worker import main; main()"
_FOLDER = Path(__file__).parents[1]
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL")  # no secrets
_DOUBTFUL = frozenset({Outcome.MEMORY, Outcome.CRASHED})  # what was drawn before may have a share in it
_FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT})


class Worker:
    """One sandboxed process, started when first needed and again whenever it is gone; safe to share between threads."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self.guards: tuple[str, ...] = ()
        """What holds the current process; see ``guards.py``."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._used = False
        self._lock = threading.Lock()
        self._picture = mmap.mmap(-1, 1)

    @property
    def pid(self) -> int | None:
        """Process id of the current process, None before the first document."""
        return self._process.pid if self._process is not None else None

    def draw(self, document: str | bytes) -> Raster:
        """Return the raster of a document or why there is none; never raises because of the document.

        Raises:
            SimulatorError: no worker can be started, or none gives an answer.
        """
        refused = refusal(document)
        if refused is not None:
            return refused
        data = document if isinstance(document, bytes) else document.encode()
        with self._lock:
            for _ in range(ATTEMPTS):
                raster = self._drawn(data)
                if raster is not None:
                    return raster
        raise SimulatorError(
            f"{ATTEMPTS} SVG workers gave no answer within {WALL_SECONDS:g} s or were killed, and not for more than "
            f"{CPU_SECONDS:g} s of processor time: the machine is overloaded or out of memory; run again later"
        )

    def start(self) -> None:
        """Start the process in the background if it is not running."""
        with self._lock:
            self._start()

    def check(self) -> None:
        """Wait until the process is ready.

        Raises:
            SimulatorError: it cannot be started.
        """
        with self._lock:
            self._await_ready()

    def close(self) -> None:
        """End the process; a later document starts another one."""
        with self._lock:
            self._kill()

    def forget(self) -> None:
        """After a fork, let go of the parent's process without touching it."""
        process, self._process, self._ready = self._process, None, False
        self._lock = threading.Lock()
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        os.close(pipe.fileno())
            # Not our child: subprocess must neither wait for it nor warn about it.
            process.returncode = 0

    def __enter__(self) -> Self:
        """Return the worker, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the worker."""
        self.close()

    def _drawn(self, data: bytes) -> Raster | None:
        """Return what the document comes to; None when a worker did not say."""
        while True:
            self._await_ready()
            fresh, self._used = not self._used, True
            raster, sound = self._ask(data)
            if not sound:
                self._kill()
                self._start()
            if raster is None or fresh or raster.outcome not in _DOUBTFUL:
                return raster

    def _start(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._kill()
        memory = _shared_memory(_PICTURE_BYTES)
        numbers = (SIDE, MEMORY_BYTES, memory, CPU_SECONDS)
        command = [sys.executable, "-P", "-c", _START, str(_FOLDER), *map(str, numbers)]
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            bufsize=0,
            pass_fds=(memory,),
            start_new_session=True,  # Ctrl-C is for the parent; a worker that dies of it would have an outcome
        )
        self._picture = mmap.mmap(memory, _PICTURE_BYTES)
        os.close(memory)
        self._ready = self._used = False
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def _await_ready(self) -> None:
        self._start()
        if self._ready:
            return
        try:
            _, _, guards = self._answer(monotonic() + START_SECONDS)
        except (_TimeoutError, _GoneError) as error:
            self._kill()
            raise SimulatorError(
                f"the SVG worker does not start ({error}); run '{sys.executable} -c \"import cairosvg\"' to see why: "
                "CairoSVG and the cairo library (libcairo2) have to be installed"
            ) from error
        self.guards = tuple(guards.split())
        self._ready = True

    def _ask(self, data: bytes) -> tuple[Raster | None, bool]:
        """Return what the document comes to, None for no answer, and whether the worker can be used again."""
        deadline = monotonic() + WALL_SECONDS
        if self._has_spoken():
            return None, False
        try:
            self._write(_LENGTH.pack(len(data)) + data, deadline)
            outcome, sound, text = self._answer(deadline)
        except _TimeoutError:
            return None, False
        except _GoneError:
            return self._post_mortem(), False
        if outcome is None:
            return Raster(Outcome.CRASHED, detail="the worker's answer makes no sense"), False
        return Raster(outcome, rgb(self._picture)) if outcome is Outcome.OK else Raster(outcome, detail=text), sound

    def _post_mortem(self) -> Raster | None:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return Raster(Outcome.CRASHED, detail="the worker closed its pipe")
        if code in _FROM_OUTSIDE:
            return None
        if code == -signal.SIGPROF:
            return Raster(Outcome.TIMEOUT, detail=f"more than {CPU_SECONDS} s of processor time")
        return Raster(Outcome.CRASHED, detail=f"the worker ended with status {code}")

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(pipe, view) :]
            except BlockingIOError:
                _wait(pipe, select.POLLOUT, deadline)
            except OSError as error:
                raise _GoneError(str(error)) from error

    def _answer(self, deadline: float) -> tuple[Outcome | None, bool, str]:
        """Return outcome (None for an answer that makes no sense), whether the worker is sound, and the explanation."""
        status, sound, size = _HEADER.unpack(self._read(_HEADER.size, deadline))
        if status >= len(_STATUSES) or size > _MAX_TEXT:
            return None, False, ""
        return Outcome(_STATUSES[status]), bool(sound), self._read(size, deadline).decode("utf-8", "replace")

    def _has_spoken(self) -> bool:
        """Whether the worker says, or said, something that nobody asked for: what comes next would be no answer."""
        assert self._process is not None
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        answer = b""
        while len(answer) < size:
            _wait(pipe, select.POLLIN, deadline)
            part = os.read(pipe, size - len(answer))
            if not part:
                raise _GoneError("it ended")
            answer += part
        return answer

    def _kill(self) -> None:
        process, self._process, self._ready = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class _TimeoutError(Exception):
    pass


class _GoneError(Exception):
    pass


def _wait(pipe: int, event: int, deadline: float) -> None:
    """Wait until the pipe can be read or written. ``poll`` has no limit on descriptor numbers, ``select`` has."""
    poll = select.poll()
    poll.register(pipe, event)
    left = deadline - monotonic()
    if left <= 0 or not poll.poll(max(1, int(left * 1000))):
        raise _TimeoutError("no answer in time")


def _shared_memory(size: int) -> int:
    """Return a descriptor of new memory that can be shared with another process; on macOS of an unlinked file."""
    if sys.platform == "linux":
        memory = os.memfd_create("pivot-svg")
    else:
        with TemporaryFile() as file:
            memory = os.dup(file.fileno())
    os.ftruncate(memory, size)
    return memory
