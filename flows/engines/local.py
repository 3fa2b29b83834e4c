"""Run a stage over shards on this machine: in this process, or in worker processes (:mod:`.processes`)."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import ConfigError
from ...core.storage import Address
from .base import Engine, Result, WorkerPool


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(eq=False)
class InProcess:
    """One worker: this process."""

    workers: int = field(default=1, init=False)
    _working: set[int] = field(default_factory=set[int], init=False)
    """Threads that run a call; Prefect calls from threads of its own."""

    def submit(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Run ``call`` at once and return its finished future."""
        future: Future[Result] = Future()
        self._working.add(threading.get_ident())
        try:
            future.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001 - handed on by the future
            future.set_exception(error)
        finally:
            self._working.discard(threading.get_ident())
        return future

    def stop(self) -> None:
        """Interrupt the calls in other threads; each ends at its next line of Python."""
        for thread in self._working - {threading.get_ident()}:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run the calls one after the other."""
        return (call(*each) for each in arguments)

    def share(self, slots: int) -> int:
        """Leave all slots to this process."""
        return slots

    def episodes(self) -> int:
        """Return 0: calls of this process report themselves."""
        return 0


def worker_pool(workers: int, environments: Sequence[str]) -> AbstractContextManager[WorkerPool]:
    """Open a pool of ``workers`` processes; with one worker, this process works itself."""
    if workers <= 1:
        return contextlib.nullcontext(InProcess())
    from .processes import process_pool  # noqa: PLC0415 - only for several workers

    return process_pool(workers, environments)


class LocalEngine(Engine):
    """Processes of this machine."""

    def pool(self, environments: Sequence[str], store: Address) -> AbstractContextManager[WorkerPool]:
        """Open a pool; see :func:`worker_pool`."""
        del store  # every process of this machine sees the same files
        if self.settings.address:
            raise ConfigError(
                f"the engine local has no cluster, but an address is given ({self.settings.address}); name an engine "
                "that has one with --engine, or leave out --address"
            )
        return worker_pool(self.settings.workers or available_cores(), environments)
