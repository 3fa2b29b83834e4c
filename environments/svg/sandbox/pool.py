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
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from ....core.errors import ConfigError, SimulatorError
from .process import Worker
from .raster import Outcome, Raster, document_key, refusal

WORKERS_VARIABLE = "PIVOT_SVG_WORKERS"
"""Environment variable: maximum number of worker processes per process."""
CACHED_RASTERS = 256
"""Size of the cache of rasters, 192 KiB each; a replay renders the same documents again."""

_PASSING = frozenset({Outcome.TIMEOUT, Outcome.CRASHED, Outcome.MEMORY})  # may differ next time, so they are not cached


class Pool:
    """Workers that serve documents in order of arrival; a worker that dies affects only its own document."""

    def __init__(self, workers: int | None = None) -> None:
        """Create the pool without processes; a worker starts when a document arrives and all others are busy.

        Args:
            workers: maximum number of processes; None for :data:`WORKERS_VARIABLE`, or one per core.
        """
        self._limit = workers
        self._reset()

    @property
    def most(self) -> int:
        """Maximum number of workers."""
        return self._limit or _most_workers()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._waiting: deque[Future[Worker]] = deque()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def draw(self, document: str | bytes) -> Raster:
        """Render a document on the next idle worker; thread-safe.

        Raises:
            SimulatorError: see :meth:`Worker.draw`.
        """
        worker = self._take()
        try:
            return worker.draw(document)
        finally:
            self._give_back(worker)

    def draw_all(self, documents: Iterable[str | bytes]) -> list[Raster]:
        """Render documents concurrently; return the results in the same order."""
        with ThreadPoolExecutor(self.most, thread_name_prefix="svg") as threads:
            return list(threads.map(self.draw, documents))

    def check(self) -> None:
        """Start a worker if there is none.

        Raises:
            SimulatorError: no worker can be started.
        """
        worker = self._take()
        try:
            worker.check()
        finally:
            self._give_back(worker)

    def close(self) -> None:
        """Terminate all workers; later documents start new ones."""
        for worker in self._workers:
            worker.close()

    def forget(self) -> None:
        """Discard the parent's processes after a fork, without sending them anything."""
        for worker in self._workers:
            worker.forget()
        self._reset()

    def __enter__(self) -> Self:
        """Return the pool, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
        self.close()

    def _take(self) -> Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()  # the most recently used one, so that fewer workers start
            if len(self._workers) < self.most:
                self._workers.append(Worker())
                return self._workers[-1]
            turn: Future[Worker] = Future()
            self._waiting.append(turn)
        return turn.result()

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set_result(worker)
            else:
                self._idle.append(worker)


class RasterCache:
    """Bounded, thread-safe cache of rasters by document; threads that need the same document render it once."""

    def __init__(self, size: int = CACHED_RASTERS) -> None:
        """Create an empty cache."""
        self._size = size
        self.forget()

    def forget(self) -> None:
        """Discard all rasters."""
        self._rasters: OrderedDict[str, Raster] = OrderedDict()
        self._drawing: dict[str, Future[Raster]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of cached rasters."""
        return len(self._rasters)

    def get(self, key: str, draw: Callable[[], Raster]) -> Raster:
        """Return the cached raster, or render it and cache it unless the outcome may differ next time."""
        with self._lock:
            if key in self._rasters:
                self._rasters.move_to_end(key)
                return self._rasters[key]
            others = self._drawing.get(key)
            drawing = self._drawing.setdefault(key, Future())
        if others is not None:
            return others.result()
        try:
            raster = draw()
        except BaseException as error:
            self._put(key, None)
            drawing.set_exception(error)
            raise
        self._put(key, raster)
        drawing.set_result(raster)
        return raster

    def _put(self, key: str, raster: Raster | None) -> None:
        with self._lock:
            del self._drawing[key]
            if raster is None or raster.outcome in _PASSING:
                return
            self._rasters[key] = raster
            while len(self._rasters) > self._size:
                self._rasters.popitem(last=False)


def rasterise(document: str) -> Raster:
    """Return the raster of a document from the cache or this process's workers; equal documents give equal pixels.

    Raises:
        SimulatorError: see :meth:`Worker.draw`.
    """
    refused = refusal(document)
    if refused is not None:
        return refused
    return _cache.get(document_key(document), lambda: _pool.draw(document))


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
    _cache.forget()


_cache = RasterCache()
_pool = Pool()
atexit.register(_pool.close)
os.register_at_fork(after_in_child=_forget)
