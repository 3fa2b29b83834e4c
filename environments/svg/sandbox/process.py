"""Parent's side of a worker process: start it on demand, send documents, replace it.

The outcome of a document depends on the document only. Its limit is processor time, measured by the kernel. A time-out
by the wall clock means that something is wrong with the machine: a document without an answer, or whose worker was
killed from outside, is retried in a new worker; if that fails too, the result is a
:class:`~pivot.core.errors.SimulatorError`, and the episode stays pending. An out-of-memory error or a crash counts only
in a worker that has rendered nothing else before. A worker that cannot be used again is replaced; its successor
starts at once in the background, to be ready for the next document.
"""

import mmap
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import Self

from ....core.errors import SimulatorError
from ....core.processes import Child
from .raster import SIDE, Outcome, Raster, refusal, rgb

MEMORY_BYTES = 768 * 1024 * 1024
"""Limit of a worker's address space, bytes."""
CPU_SECONDS = 0.8
"""Limit of processor time per document, a hundred times that of an icon; independent of the machine's load."""
WALL_SECONDS = 60.0
"""Limit of wall-clock time per document, long enough for a machine that is overloaded seventy times."""
START_SECONDS = 60.0
"""Limit of wall-clock time until a worker is ready, normally a third of a second."""
ATTEMPTS = 2
"""Number of workers to try per document that gets no answer."""

_HEADER = struct.Struct("<BBQ")
_LENGTH = struct.Struct("<Q")
_STATUSES = ("ok", "not_svg", "forbidden", "memory", "render_error")  # as in worker.py
_PICTURE_BYTES = SIDE * SIDE * 4
_MAX_TEXT = 4096
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sandbox.worker import main; main()"
_FOLDER = Path(__file__).parents[1]
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL")  # no secrets
_DOUBTFUL = frozenset({Outcome.MEMORY, Outcome.CRASHED})  # earlier documents may have contributed to it
_FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT})


class Worker:
    """Sandboxed process, started on demand and restarted after it ends; thread-safe."""

    def __init__(self) -> None:
        """Create the worker without starting its process."""
        self._child: Child | None = None
        self._ready = False
        self._used = False
        self._lock = threading.Lock()
        self._picture = mmap.mmap(-1, 1)

    @property
    def pid(self) -> int | None:
        """Process id of the current process, None before the first document."""
        return self._child.pid if self._child is not None else None

    def draw(self, document: str | bytes) -> Raster:
        """Return the raster of a document, or the reason why there is none; no document causes an exception.

        Raises:
            SimulatorError: no worker can be started, or no worker answers.
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
            SimulatorError: the process cannot be started.
        """
        with self._lock:
            self._await_ready()

    def close(self) -> None:
        """Terminate the process; a later document starts a new one."""
        with self._lock:
            self._kill()

    def forget(self) -> None:
        """Discard the parent's process after a fork, without sending it anything."""
        child, self._child, self._ready = self._child, None, False
        self._lock = threading.Lock()
        if child is not None:
            child.forget()

    def __enter__(self) -> Self:
        """Return the worker, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the worker."""
        self.close()

    def _drawn(self, data: bytes) -> Raster | None:
        """Return the outcome of a document; None if the worker did not answer."""
        while True:
            child = self._await_ready()
            fresh, self._used = not self._used, True
            raster, sound = self._ask(child, data)
            if not sound:
                self._kill()
                self._start()
            if raster is None or fresh or raster.outcome not in _DOUBTFUL:
                return raster

    def _start(self) -> None:
        if self._child is not None and self._child.status() is None:
            return
        self._kill()
        memory = _shared_memory(_PICTURE_BYTES)
        numbers = (SIDE, MEMORY_BYTES, memory, CPU_SECONDS)
        self._child = Child(
            [sys.executable, "-P", "-c", _START, str(_FOLDER), *map(str, numbers)],
            "the SVG worker",
            SimulatorError,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            cwd="/",
            pass_fds=(memory,),
        )
        self._picture = mmap.mmap(memory, _PICTURE_BYTES)
        os.close(memory)
        self._ready = self._used = False

    def _await_ready(self) -> Child:
        self._start()
        assert self._child is not None
        if self._ready:
            return self._child
        try:
            _answer(self._child, monotonic() + START_SECONDS)
        except OSError as error:  # includes TimeoutError
            self._kill()
            raise SimulatorError(
                f"the SVG worker does not start ({error}); run '{sys.executable} -c \"import cairosvg\"' to see why: "
                "CairoSVG and the cairo library (libcairo2) have to be installed"
            ) from error
        self._ready = True
        return self._child

    def _ask(self, child: Child, data: bytes) -> tuple[Raster | None, bool]:
        """Return the outcome of a document (None for no answer), and whether the worker can be used again."""
        deadline = monotonic() + WALL_SECONDS
        if child.has_spoken():  # unsolicited output: the next bytes would not be the answer
            return None, False
        try:
            child.write(_LENGTH.pack(len(data)) + data, deadline)
            outcome, sound, text = _answer(child, deadline)
        except TimeoutError:
            return None, False
        except OSError:
            return _post_mortem(child), False
        if outcome is None:
            return Raster(Outcome.CRASHED, detail="the worker's answer is malformed"), False
        return Raster(outcome, rgb(self._picture)) if outcome is Outcome.OK else Raster(outcome, detail=text), sound

    def _kill(self) -> None:
        child, self._child, self._ready = self._child, None, False
        if child is not None:
            child.end()


def _answer(child: Child, deadline: float) -> tuple[Outcome | None, bool, str]:
    """Return outcome (None for a malformed answer), whether the worker can be used again, and the explanation."""
    status, sound, size = _HEADER.unpack(child.read(_HEADER.size, deadline))
    if status >= len(_STATUSES) or size > _MAX_TEXT:
        return None, False, ""
    return Outcome(_STATUSES[status]), bool(sound), child.read(size, deadline).decode("utf-8", "replace")


def _post_mortem(child: Child) -> Raster | None:
    """Return the outcome of a document whose worker ended; None if it was killed from outside."""
    code = child.status(patience=1.0)
    if code is None:
        return Raster(Outcome.CRASHED, detail="the worker closed its pipe")
    if code in _FROM_OUTSIDE:
        return None
    if code == -signal.SIGPROF:
        return Raster(Outcome.TIMEOUT, detail=f"more than {CPU_SECONDS} s of processor time")
    return Raster(Outcome.CRASHED, detail=f"the worker ended with status {code}")


def _shared_memory(size: int) -> int:
    """Return a descriptor of new shared memory; on macOS, of an unlinked file."""
    if sys.platform == "linux":
        memory = os.memfd_create("pivot-svg")
    else:
        with TemporaryFile() as file:
            memory = os.dup(file.fileno())
    os.ftruncate(memory, size)
    return memory
