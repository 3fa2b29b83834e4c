"""Draw untrusted SVG documents: CairoSVG in a worker process that has given its rights away (spec section 7).

Every document gets an outcome, never an exception: pixels, or a typed reason. The parent looks at size and first bytes,
sends the rest to the worker over a pipe, keeps the wall clock, and replaces a worker that was too slow or died. The
replacement starts at once, in the background, so that the next document finds it ready.

What holds the worker (``worker.py``): it can open no file, socket, pipe or other descriptor
(a limit of zero new ones, for Python and C code alike), write to no file, and start no process; it has 768 MiB of
address space and 0.8 s of processor time a document. Entities, internal or external, are refused by defusedxml;
addresses other than ``data:`` are not followed by CairoSVG.

What the sandbox does **not** cover: it is no container and no system call filter. Code that takes over the worker
through a bug in cairo, the XML parser or a picture decoder still runs as the same user: it can signal that user's
processes, and root can raise its own limits again. The kernel's own bugs are not covered either. Linux and macOS only.
Text is drawn in the machine's default sans-serif font, so pictures *with text* differ between machines; other pictures
depend on the version of cairo alone.
"""

import atexit
import contextlib
import hashlib
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from time import monotonic
from typing import Self

import cv2
import numpy as np

from ...base import Frame

SIDE = 256
"""Pixels of a raster's side."""
MAX_DOCUMENT_BYTES = 512 * 1024
"""Largest document that is drawn, UTF-8."""
MEMORY_BYTES = 768 * 1024 * 1024
"""Address space of a worker."""
CPU_SECONDS = 0.8
"""Processor time of a document; what an icon takes a hundred times over. Independent of how busy the machine is."""
WALL_SECONDS = 1.5
"""Wall clock of a document, for a worker that sleeps or a machine that is overloaded."""
START_SECONDS = 30.0
"""Wall clock for a worker to get ready; normally a quarter of a second."""
CACHED_RASTERS = 256
"""Rasters kept, 192 KiB each: a replay draws the same documents again."""

_HEADER = struct.Struct("<BQ")
_LENGTH = struct.Struct("<Q")
_STATUSES = ("ok", "not_svg", "forbidden", "memory", "render_error")  # as in worker.py
_PICTURE_BYTES = SIDE * SIDE * 4
_MAX_TEXT = 4096
_WORKER = Path(__file__).with_name("worker.py")
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL")  # no secrets


class Outcome(StrEnum):
    """What became of a document."""

    OK = "ok"
    EMPTY = "empty"  # nothing but white space
    TOO_LARGE = "too_large"  # more than MAX_DOCUMENT_BYTES
    NOT_TEXT = "not_text"  # not UTF-8, holds NUL, or is compressed
    NOT_SVG = "not_svg"  # not well-formed XML, or the root is not <svg>
    FORBIDDEN = "forbidden"  # declares entities or refers to external ones
    TIMEOUT = "timeout"
    MEMORY = "memory"
    RENDER_ERROR = "render_error"  # CairoSVG cannot draw it
    CRASHED = "crashed"  # the worker died of it


_PASSING = frozenset({Outcome.TIMEOUT, Outcome.CRASHED})  # may be different next time: never cached
_SPENT = frozenset({Outcome.TIMEOUT, Outcome.CRASHED, Outcome.MEMORY})  # the worker is not used again


@dataclass(frozen=True, slots=True)
class Raster:
    """The picture of a document, or why there is none."""

    outcome: Outcome
    pixels: Frame | None = None
    """Read-only RGB, :data:`SIDE` x :data:`SIDE`, on white; None unless the outcome is ``ok``."""
    detail: str = ""
    """The reason in words, for people; may differ between versions."""


def document_key(document: str) -> str:
    """Return the SHA-256 of the document's UTF-8, 64 hex digits; lone surrogates count as ``?``."""
    return hashlib.sha256(document.encode("utf-8", "replace")).hexdigest()


def refusal(document: str | bytes) -> Raster | None:
    """Return why a document is not even sent to a worker, or None."""
    if len(document) > MAX_DOCUMENT_BYTES:  # before anything that takes time in proportion
        return Raster(Outcome.TOO_LARGE, detail=f"{len(document)} characters; {MAX_DOCUMENT_BYTES} bytes are drawn")
    try:
        data = document if isinstance(document, bytes) else document.encode()
        data.decode()
    except UnicodeError as error:
        reason = "it is compressed (svgz)" if document[:2] == b"\x1f\x8b" else str(error)[:200]
        return Raster(Outcome.NOT_TEXT, detail=f"the document is not UTF-8: {reason}")
    if b"\0" in data:
        return Raster(Outcome.NOT_TEXT, detail="the document holds a NUL character")
    if len(data) > MAX_DOCUMENT_BYTES:
        return Raster(Outcome.TOO_LARGE, detail=f"{len(data)} bytes; at most {MAX_DOCUMENT_BYTES} are drawn")
    return None if data.strip() else Raster(Outcome.EMPTY, detail="the document is empty")


def rgb(pixels: bytes | mmap.mmap) -> Frame:
    """Return the read-only picture of :data:`SIDE` x :data:`SIDE` pixels in cairo's order of channels, BGRx."""
    frame = np.empty((SIDE, SIDE, 3), np.uint8)
    cv2.cvtColor(np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE, 4), cv2.COLOR_BGRA2RGB, dst=frame)
    frame.flags.writeable = False
    return frame


class Worker:
    """One sandboxed process, started when first needed and again whenever it is gone; safe to share between threads."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._lock = threading.Lock()
        self._picture = mmap.mmap(-1, 1)

    @property
    def pid(self) -> int | None:
        """Process id of the current process, None before the first document."""
        return self._process.pid if self._process is not None else None

    def draw(self, document: str | bytes) -> Raster:
        """Return the raster of a document or why there is none; never raises because of the document.

        Raises:
            RuntimeError: no worker can be started on this machine.
        """
        refused = refusal(document)
        if refused is not None:
            return refused
        data = document if isinstance(document, bytes) else document.encode()
        with self._lock:
            self._start()
            self._await_ready()
            raster = self._ask(data)
            if raster.outcome in _SPENT:
                self._kill()
                self._start()
            return raster

    def start(self) -> None:
        """Start the process in the background if it is not running."""
        with self._lock:
            self._start()

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

    def _start(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._kill()
        memory = _shared_memory(_PICTURE_BYTES)
        numbers = (SIDE, MEMORY_BYTES, memory, CPU_SECONDS)
        command = [sys.executable, "-P", str(_WORKER), *map(str, numbers)]
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
        )
        self._picture = mmap.mmap(memory, _PICTURE_BYTES)
        os.close(memory)
        self._ready = False
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def _await_ready(self) -> None:
        if self._ready:
            return
        try:
            self._read(_HEADER.size, monotonic() + START_SECONDS)
        except (_TimeoutError, _GoneError) as error:
            self._kill()
            raise RuntimeError(
                f"the SVG worker does not start ({error}); run '{sys.executable} -c \"import cairosvg\"' to see why: "
                "CairoSVG and the cairo library (libcairo2) have to be installed"
            ) from error
        self._ready = True

    def _ask(self, data: bytes) -> Raster:
        deadline = monotonic() + WALL_SECONDS
        try:
            self._write(_LENGTH.pack(len(data)) + data, deadline)
            status, size = _HEADER.unpack(self._read(_HEADER.size, deadline))
            if status >= len(_STATUSES) or size > _MAX_TEXT:
                return Raster(Outcome.CRASHED, detail="the worker's answer makes no sense")
            body = self._read(size, deadline)
        except _TimeoutError:
            return Raster(Outcome.TIMEOUT, detail=f"no answer within {WALL_SECONDS} s")
        except _GoneError:
            return self._post_mortem()
        outcome = Outcome(_STATUSES[status])
        if outcome is not Outcome.OK:
            return Raster(outcome, detail=body.decode("utf-8", "replace"))
        return Raster(outcome, rgb(self._picture))

    def _post_mortem(self) -> Raster:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return Raster(Outcome.CRASHED, detail="the worker closed its pipe")
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


class Pool:
    """Several workers for many documents; a worker that dies costs only its own document."""

    def __init__(self, workers: int = 2) -> None:
        """Start ``workers`` processes in the background."""
        self._workers = [Worker() for _ in range(workers)]
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            worker.start()
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="svg")

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def draw(self, document: str | bytes) -> Raster:
        """Draw one document on the next idle worker; safe to call from several threads."""
        worker = self._idle.get()
        try:
            return worker.draw(document)
        finally:
            self._idle.put(worker)

    def draw_all(self, documents: Iterable[str | bytes]) -> list[Raster]:
        """Draw many documents; results in their order."""
        return list(self._threads.map(self.draw, documents))

    def close(self) -> None:
        """End all workers."""
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        """Return the pool, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
        self.close()


class RasterCache:
    """The last rasters by document; bounded, safe to share between threads."""

    def __init__(self, size: int = CACHED_RASTERS) -> None:
        """Start empty."""
        self._size = size
        self._rasters: OrderedDict[str, Raster] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._rasters)

    def get(self, key: str) -> Raster | None:
        """Return a kept raster."""
        with self._lock:
            raster = self._rasters.get(key)
            if raster is not None:
                self._rasters.move_to_end(key)
            return raster

    def put(self, key: str, raster: Raster) -> None:
        """Keep a raster, unless the outcome may be another one next time."""
        if raster.outcome in _PASSING:
            return
        with self._lock:
            self._rasters[key] = raster
            self._rasters.move_to_end(key)
            while len(self._rasters) > self._size:
                self._rasters.popitem(last=False)


def rasterise(document: str) -> Raster:
    """Return the raster of a document from this process's one worker, or a kept one. Equal calls give equal pixels."""
    refused = refusal(document)
    if refused is not None:
        return refused
    key = document_key(document)
    raster = _cache.get(key)
    if raster is None:
        raster = _worker.draw(document)
        _cache.put(key, raster)
    return raster


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


_cache = RasterCache()
_worker = Worker()
atexit.register(_worker.close)
os.register_at_fork(after_in_child=_worker.forget)
