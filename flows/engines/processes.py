"""A pool of long-lived worker processes of this machine.

It outlives the stages of a run, so each worker imports and compiles once. Workers ignore Ctrl-C and end with their
parent. A worker that dies (killed by the system, out of memory) ends the run with one message; finished shards are
kept.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from ...core.admission import allowed_names, allowing
from ...core.errors import StoreError
from .base import Result

SLOTS = 256
"""Shared slots of a model server until a stage sets their number."""


def _no_work() -> None:
    """Make a worker process start."""


_over: Any = None
"""Number of episodes that are over in all workers of the pool, in a worker."""


def count_episodes(count: int) -> None:
    """Report episodes that are over to the parent of this worker."""
    if _over is not None:
        with _over.get_lock():
            _over.value += count


def _start_worker(names: tuple[str, ...], slots: Any, over: Any) -> None:
    """Ignore Ctrl-C and import the environments while the parent prepares the run."""
    global _over  # noqa: PLW0603 - of this worker
    _over = over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # see interrupts_held: its own children may be stopped
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from ...datasets.store.config import environment  # noqa: PLC0415 - only a worker pays for it here
    from ...models.pacing import share_slots  # noqa: PLC0415 - as above

    share_slots(slots)
    for name in names:
        environment(name)


def _end_with_parent() -> None:
    """End this worker when its parent is gone; it would wait forever, and write to a store of another run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Block Ctrl-C while processes are started: they inherit the block and ignore it before their first import.

    This process handles a Ctrl-C of that time right afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call with the names that it may load, for another process."""

    names: tuple[str, ...]
    call: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Run the call while its names are allowed."""
        with allowing(self.names):
            return self.call(*arguments)


class Processes:
    """Several worker processes."""

    def __init__(self, executor: ProcessPoolExecutor, workers: int, slots: Any, over: Any) -> None:
        """Use ``executor``, and start its workers now; they have ``slots`` and ``over``."""
        self.workers, self._slots, self._over = workers, slots, over
        self._executor = executor
        others = set(multiprocessing.active_children())
        with interrupts_held():
            for _ in range(workers):
                executor.submit(_no_work)
        self._processes = set(multiprocessing.active_children()) - others

    def submit(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Hand ``call`` to the next free process."""
        with worker_deaths():
            return self._executor.submit(Admitted(allowed_names(), call), *arguments)

    def stop(self) -> None:
        """End the worker processes."""
        for process in self._processes:
            process.terminate()

    def close(self) -> None:
        """Wait for the running calls, and end the worker processes.

        A killed worker may hold the lock under which the others take their last order, and the library would then wait
        for ever, so the others are ended, too.
        """
        watch = threading.Thread(target=self._end_with_a_lost_one, daemon=True)
        watch.start()
        self._executor.shutdown(wait=True, cancel_futures=True)
        watch.join()  # an exit would interrupt it while it releases the semaphore

    def _end_with_a_lost_one(self) -> None:
        while left := [process.sentinel for process in self._processes if process.is_alive()]:
            if any(process.exitcode for process in self._processes):
                self.stop()
            connection.wait(left)

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run the calls on all processes; the first error cancels calls that have not begun."""
        futures = [self.submit(call, *each) for each in arguments]
        try:
            for future in as_completed(futures):
                yield finished(future)
        finally:
            for future in futures:
                future.cancel()

    def share(self, slots: int) -> int:
        """Put ``slots`` slots into the semaphore of the workers, while none of them runs a call."""
        while self._slots.acquire(False):
            pass
        for _ in range(slots):
            self._slots.release()
        return slots

    def episodes(self) -> int:
        """Return the sum of the workers' reports."""
        return self._over.value


@contextlib.contextmanager
def process_pool(workers: int, environments: Sequence[str]) -> Iterator[Processes]:
    """Open a pool of ``workers`` processes.

    They are spawned, not forked: the parent runs threads (Prefect, compiled code) that a fork would break.
    """
    context = multiprocessing.get_context("spawn")
    slots, over = context.Semaphore(SLOTS), context.Value("Q", 0)
    executor = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(tuple(environments), slots, over)
    )
    try:
        pool = Processes(executor, workers, slots, over)
        try:
            yield pool
        except KeyboardInterrupt:
            pool.stop()
            raise
        finally:
            pool.close()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)  # also after Ctrl-C while workers started


def finished(future: "Future[Result]") -> Result:
    """Return a future's result.

    Raises:
        StoreError: its worker process died.
    """
    with worker_deaths():
        return future.result()


@contextlib.contextmanager
def worker_deaths() -> Iterator[None]:
    """Translate the death of a worker process into an error with its fix.

    Raises:
        StoreError: one died.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise StoreError(
            "a worker process died (killed by the system, perhaps for memory); run the same command again with fewer "
            "--workers; finished shards are kept"
        ) from error
