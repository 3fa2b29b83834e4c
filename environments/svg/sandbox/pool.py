"""Renderer of untrusted SVG documents: CairoSVG in worker processes with limits.

Every document gets an outcome, never an exception: pixels, or a typed reason. The parent checks size and first bytes
(``raster.py``), sends the document to a worker over a pipe, and replaces a worker that cannot be used again
(``process.py``). The outcome depends only on the document and the installed libraries, not on the number of workers,
earlier documents or the load of the machine. The one exception is a document that needs almost exactly ``CPU_SECONDS``,
because processor time is not an exact measure: its outcome may be ``ok`` or ``timeout``.

docs/SECURITY.md says what a worker can do. Text uses the machine's default
sans-serif font, so pictures *with text* differ between machines; other pictures depend only on the version of cairo.
"""

import atexit
import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from queue import LifoQueue
from typing import Self

from ....core.errors import ConfigError, SimulatorError
from .process import Worker
from .raster import Outcome, Raster, refusal

WORKERS_VARIABLE = "PIVOT_SVG_WORKERS"
"""Environment variable: maximum number of worker processes per process."""
CACHED_RASTERS = 256
"""Size of the cache of rasters, 192 KiB each; a replay renders the same documents again."""

_PASSING = frozenset({Outcome.TIMEOUT, Outcome.CRASHED, Outcome.MEMORY})  # may differ next time, so they are not cached


class Pool:
    """Workers that draw documents; one that dies affects only its own document."""

    _workers: Sequence[Worker] = ()

    def __init__(self, workers: int | None = None) -> None:
        """Create the pool without processes; a worker starts when a document arrives and all others are busy.

        Args:
            workers: maximum number of processes; None for :data:`WORKERS_VARIABLE`, or one per core.
        """
        self._limit = workers
        self.forget()

    @property
    def most(self) -> int:
        """Maximum number of workers."""
        return self._limit or _most_workers()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def draw(self, document: str | bytes) -> Raster:
        """Render a document on the next idle worker; thread-safe.

        Raises:
            SimulatorError: see :meth:`Worker.draw`.
        """
        with self._worker() as worker:
            return worker.draw(document)

    def draw_all(self, documents: Iterable[str | bytes]) -> list[Raster]:
        """Render documents concurrently; return the results in the same order."""
        with ThreadPoolExecutor(self.most, thread_name_prefix="svg") as threads:
            return list(threads.map(self.draw, documents))

    def check(self) -> None:
        """Start a worker if there is none.

        Raises:
            SimulatorError: no worker can be started.
        """
        with self._worker() as worker:
            worker.check()

    def close(self) -> None:
        """Terminate all workers; later documents start new ones."""
        for worker in self._workers:
            worker.close()

    def forget(self) -> None:
        """Discard the parent's processes after a fork, without sending them anything."""
        for worker in self._workers:
            worker.forget()
        self._lock = threading.Lock()
        self._workers = []
        self._idle: LifoQueue[Worker] = LifoQueue()

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        """Lend the worker that was used last, so that no more start than are needed."""
        with self._lock:
            if not self._workers:
                self._workers = [Worker() for _ in range(self.most)]
                for worker in self._workers:
                    self._idle.put(worker)
        worker = self._idle.get()
        try:
            yield worker
        finally:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        """Return the pool, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
        self.close()


class _PassingError(Exception):
    """Carries a raster past the cache."""


@lru_cache(maxsize=CACHED_RASTERS)
def _kept(document: str) -> Raster:
    raster = _pool.draw(document)
    if raster.outcome in _PASSING:
        raise _PassingError(raster)
    return raster


def rasterise(document: str) -> Raster:
    """Return the raster of a document from the cache or this process's workers; equal documents give equal pixels.

    Raises:
        SimulatorError: see :meth:`Worker.draw`.
    """
    refused = refusal(document)
    if refused is not None:
        return refused
    try:
        return _kept(document)
    except _PassingError as error:
        return error.args[0]


def check_sandbox() -> None:
    """Start a worker if there is none.

    Raises:
        ConfigError: no worker can be started, or :data:`WORKERS_VARIABLE` is not a valid number.
    """
    try:
        _pool.check()
    except SimulatorError as error:
        raise ConfigError(str(error)) from error


def _most_workers() -> int:
    """Return the number in :data:`WORKERS_VARIABLE`, or one per core; in child processes of a run the default is one.

    Raises:
        ConfigError: the variable is not a number from 1 to 1000.
    """
    text = os.environ.get(WORKERS_VARIABLE)
    if text is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cores if multiprocessing.parent_process() is None else 1
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ConfigError(f"{WORKERS_VARIABLE} is {text!r}; expected a number of processes from 1 to 1000")
    return int(text)


def _forget() -> None:
    _pool.forget()
    _kept.cache_clear()


_pool = Pool()
atexit.register(_pool.close)
os.register_at_fork(after_in_child=_forget)
