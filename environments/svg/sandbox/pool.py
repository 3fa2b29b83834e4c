"""Draw untrusted SVG documents: CairoSVG in worker processes that have given their rights away (spec section 7).

Every document gets an outcome, never an exception: pixels, or a typed reason. The parent looks at size and first bytes
(``raster.py``), sends the rest to a worker over a pipe and replaces a worker that may have been harmed
(``process.py``). The outcome is a function of the document and the installed libraries: neither the number of workers,
nor what they drew before, nor how busy the machine is has a part in it. Only a document that needs just about
``CPU_SECONDS`` may come to ``ok`` once and ``timeout`` another time, for processor time is no exact measure.

What holds a worker, and what does not: SECURITY.md, and ``guards.py`` for how. Text is drawn in the machine's default
sans-serif font, so pictures *with text* differ between machines; other pictures depend on the version of cairo alone.
"""

import atexit
import multiprocessing
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from ....errors import ConfigError, SimulatorError
from .process import Worker
from .raster import Outcome, Raster, document_key, refusal

WORKERS_VARIABLE = "PIVOT_SVG_WORKERS"
"""Environment variable: most worker processes of one process."""
CACHED_RASTERS = 256
"""Rasters kept, 192 KiB each: a replay draws the same documents again."""

_PASSING = frozenset({Outcome.TIMEOUT, Outcome.CRASHED, Outcome.MEMORY})  # may be different next time: never cached


class Pool:
    """Several workers for many documents, first come first served; a worker that dies costs only its own document."""

    def __init__(self, workers: int | None = None) -> None:
        """Start nothing yet: a worker starts when a document comes and all others are busy, up to ``workers``.

        Args:
            workers: most processes; None for the setting, or as many as the machine's cores suggest.
        """
        self._asked = workers
        self._reset()

    @property
    def most(self) -> int:
        """Most workers that there can be."""
        return self._asked or _most_workers()

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
        """Draw one document on the next idle worker; safe to call from several threads.

        Raises:
            SimulatorError: see :meth:`Worker.draw`.
        """
        worker = self._take()
        try:
            return worker.draw(document)
        finally:
            self._give_back(worker)

    def draw_all(self, documents: Iterable[str | bytes]) -> list[Raster]:
        """Draw many documents side by side; results in their order."""
        with ThreadPoolExecutor(self.most, thread_name_prefix="svg") as threads:
            return list(threads.map(self.draw, documents))

    def check(self) -> tuple[str, ...]:
        """Return the guards that hold a worker (``guards.py``).

        Raises:
            SimulatorError: none can be started.
        """
        worker = self._take()
        try:
            worker.check()
            return worker.guards
        finally:
            self._give_back(worker)

    def close(self) -> None:
        """End all workers; later documents start others."""
        for worker in self._workers:
            worker.close()

    def forget(self) -> None:
        """After a fork, let go of the parent's processes without touching them."""
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
                return self._idle.pop()  # the last used one: others may never have to start
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
    """The last rasters by document; bounded, safe to share between threads, which draw a document once together."""

    def __init__(self, size: int = CACHED_RASTERS) -> None:
        """Start empty."""
        self._size = size
        self.forget()

    def forget(self) -> None:
        """Start anew."""
        self._rasters: OrderedDict[str, Raster] = OrderedDict()
        self._drawing: dict[str, Future[Raster]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._rasters)

    def get(self, key: str, draw: Callable[[], Raster]) -> Raster:
        """Return the kept raster, or draw it; it is kept unless the outcome may be another one next time."""
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
    """Return the raster of a document from this process's workers, or a kept one. Equal calls give equal pixels.

    Raises:
        SimulatorError: see :meth:`Worker.draw`.
    """
    refused = refusal(document)
    if refused is not None:
        return refused
    return _cache.get(document_key(document), lambda: _pool.draw(document))


def check_sandbox() -> tuple[str, ...]:
    """Start a worker if there is none; return the names of the guards that hold it.

    Raises:
        ConfigError: no worker can be started, or the setting for their number is none.
    """
    try:
        return _pool.check()
    except SimulatorError as error:
        raise ConfigError(str(error)) from error


def _most_workers() -> int:
    """Return the setting, or a worker for each core; in one of several processes of a run, which share the cores, one.

    Raises:
        ConfigError: the setting is not a number from 1 to 1000.
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
