"""Concurrent work in one event loop that ends with its first error: the skeleton of every scheduler here.

A scheduler says which work may begin: :meth:`Supervisor.run` asks it after every change. The supervisor keeps the work
in progress, wakes the scheduler when some of it ends, and raises the first error. The scheduler then stops the rest and
keeps what is finished.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class WorkGroup:
    """Work of one kind that is in progress, such as episodes or requests."""

    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor
        self.running: set[asyncio.Future[Any]] = set()

    def __len__(self) -> int:
        """Return how much work is in progress."""
        return len(self.running)

    def start(self, work: "Coroutine[Any, Any, None] | asyncio.Future[Any]") -> None:
        """Begin ``work``; its first error ends the run of the supervisor."""
        future = asyncio.ensure_future(work)
        self.running.add(future)
        future.add_done_callback(self._end)

    def _end(self, future: "asyncio.Future[Any]") -> None:
        self.running.discard(future)
        self._supervisor.notice(None if future.cancelled() else future.exception())


class Supervisor:
    """The work in progress of one scheduler. Make it within the event loop."""

    def __init__(self) -> None:
        self._groups: list[WorkGroup] = []
        self._changed = asyncio.Event()
        self.error: BaseException | None = None
        """The first error; no work begins after it."""

    def group(self) -> WorkGroup:
        """Return a new, empty group of work."""
        self._groups.append(WorkGroup(self))
        return self._groups[-1]

    def notice(self, error: BaseException | None = None) -> None:
        """Wake the scheduler; ``error`` ends the run unless an earlier one did."""
        self.error = self.error or error
        self._changed.set()

    async def run(self, begin: Callable[[], None]) -> None:
        """Call ``begin``, which starts what may begin, after every change until no work is in progress.

        Raises:
            BaseException: the first error of any work; other work is still in progress then.
        """
        while self.error is None:
            begin()
            if not any(self._groups):
                return
            self._changed.clear()
            await self._changed.wait()
        raise self.error

    async def stop(self, *cancelled: WorkGroup) -> None:
        """Cancel the work of some groups and wait until all work has ended, whatever its outcome."""
        for group in cancelled:
            for work in group.running:
                work.cancel()
        await asyncio.gather(*(work for group in self._groups for work in group.running), return_exceptions=True)


def run_without_gc_pauses(work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` in an event loop of its own, like :func:`asyncio.run`, without pauses of the garbage collector.

    A full collection visits every object that was ever imported, a million of them: up to half a second in which no
    request is sent. Objects that exist when the loop begins are therefore left out of collections until it ends.
    """
    gc.freeze()
    try:
        return asyncio.run(work)
    finally:
        gc.unfreeze()
