"""The common part of cluster engines: calls that are sent as bytes, and a pool of workers on any machine.

A call and its result are pickled, so schedulers need none of our types, and an error keeps its type. The scheduler of
the cluster decides where a call runs, and runs it again elsewhere when its node is lost: a shard writes whole files and
its receipt last, so a second run finds it done or makes the same bytes.

Prefect's own runners for clusters (``RayTaskRunner`` of prefect-ray, ``DaskTaskRunner`` of prefect-dask) run its task
engine on the workers. Each of them then has to reach the Prefect server; one that cannot starts a server of its
own, ten seconds a worker, and its task runs are never seen. They serve the tasks of a flow only, while most builds have
none. So here the tasks stay with the driver, which names and reports each, and the cluster does their work.
"""

import contextlib
import os
import pickle
import socket
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ...core.errors import ConfigError, StoreError
from .base import Result
from .versions import other_versions, versions_here

OUR_VARIABLES = "PIVOT_"
"""Prefix of the environment variables that are sent with a call; a variable that the worker has already wins."""

PREFETCH_PER_CORE = 2
"""Submitted calls of a stream per core, so that the next one is there when one ends; in a running cluster, a limit on
concurrent calls overrides it."""

RETRIES = 3
"""Times that a call runs again when its node or process is lost, so that a call that kills its process ends."""


MOST_WARMED = 32
"""Most workers that import environments before the first shard; in a large cluster they wait for shards anyway."""


# Calls that travel


@dataclass(frozen=True, slots=True)
class Order:
    """A call for a worker."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    folder: str = field(default_factory=os.getcwd)
    """Working folder of the driver; relative paths of the store and in settings start there."""
    variables: Mapping[str, str] = field(
        default_factory=lambda: {name: text for name, text in os.environ.items() if name.startswith(OUR_VARIABLES)}
    )


class WorkerTracebackError(Exception):
    """Traceback of an error on a worker, attached as its cause: it names the files of plugins."""

    def __init__(self, text: str) -> None:
        """Hold the text of the traceback."""
        super().__init__(f'\n"""\n{text}"""')


_one_at_a_time = threading.Lock()


def carry_out(order: bytes) -> bytes:
    """Run a :class:`Order` that :func:`packed` made; return its pickled result or error, and a traceback.

    Orders run one at a time: environments and solvers are not safe in several threads. A process with other versions
    than the driver refuses them, also if it joined after the check of the nodes.
    """
    with _one_at_a_time:
        try:
            versions, sent = pickle.loads(order)  # noqa: S301 - from our own driver, over the cluster's connection
            if versions is not None and (other := other_versions(versions_here(), versions)):
                raise ConfigError(
                    f"a worker on {socket.gethostname()} has other versions than the driver, which may make other "
                    f"bytes: {other}; install the same there, start its workers again, and run the same command again"
                )
            unpacked: Order = pickle.loads(sent)  # noqa: S301 - as above
            for name, text in unpacked.variables.items():
                os.environ.setdefault(name, text)
            with _in_folder(unpacked.folder):
                return pickle.dumps((unpacked.call(*unpacked.arguments), None, ""))
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            return pickle.dumps((None, portable(error), traceback.format_exc()))


@contextlib.contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Change to the driver's folder if this machine has it; the check of the store reports a missing one."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(contextlib.chdir(folder))
        yield


def portable(error: Exception) -> Exception:
    """Return an error that can be pickled: itself, or a RuntimeError with its message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled a moment before
    except Exception:  # noqa: BLE001 - an error that does not travel
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def get_ready(names: tuple[str, ...]) -> None:
    """Import environments on a worker."""
    from ...datasets.store.config import environment  # noqa: PLC0415 - only a worker pays for it here

    for name in names:
        environment(name)


def packed(order: Order, *, checked: bool = True) -> bytes:
    """Return a pickled order with the versions that a worker has to have; ``checked=False`` for any versions."""
    return pickle.dumps((versions_here() if checked else None, pickle.dumps(order)))


def unpacked(answer: bytes) -> Any:
    """Return the result that :func:`carry_out` packed, or raise its error."""
    result, error, text = pickle.loads(answer)  # noqa: S301 - from our own worker, over the cluster's connection
    if error is not None:
        raise error from WorkerTracebackError(text)
    return result


# The pool


Settle = Callable[[Callable[[], bytes]], None]
"""Called once with a function that returns the answer of a call, or raises the cluster's own error."""


class ClusterPool(ABC):
    """Workers of a cluster; a subclass submits calls to its scheduler."""

    def __init__(self, limit: int, address: str) -> None:
        """Run at most ``limit`` calls at a time, 0 for one per core of the cluster at ``address``.

        Without an address the cluster was started for this run with ``limit`` cores, so more calls may wait in it.
        """
        self._limit, self._own = limit, not address
        self._pending: dict[Future[Any], Any] = {}
        self._lock = threading.Lock()
        self._stopped = False

    @abstractmethod
    def hand_over(self, order: bytes, settle: Settle) -> Any:
        """Submit ``carry_out(order)`` to the scheduler, which calls ``settle`` from any thread; return a handle."""

    @abstractmethod
    def give_up(self, handles: Sequence[Any]) -> None:
        """Cancel calls, running ones too if the scheduler can."""

    @abstractmethod
    def ask_nodes(self, order: bytes) -> Mapping[str, Callable[[], bytes]]:
        """Run ``carry_out(order)`` on every node that may get calls; return a function for the answer of each node."""

    @abstractmethod
    def cores(self) -> int:
        """Return the number of calls that the cluster can run at the same time now."""

    @abstractmethod
    def loss(self, error: Exception) -> StoreError:
        """Return the error that explains an error of the cluster itself, with its fix."""

    @property
    def workers(self) -> int:
        """Number of calls that run at the same time."""
        return self._limit or max(1, self.cores())

    def warm(self, environments: Sequence[str]) -> None:
        """Let workers import these environments while the driver prepares the run."""
        for _ in range(min(self.workers, MOST_WARMED)):
            self.submit(get_ready, tuple(environments))

    def submit(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Submit one call; cancelling the future cancels the call."""
        future: Future[Result] = Future()
        if self._stopped:
            future.set_exception(StoreError("the run was stopped"))
            return future

        def settle(answer: Callable[[], bytes]) -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(unpacked(self._answered(answer)))
            except BaseException as error:  # noqa: BLE001 - handed on by the future
                future.set_exception(error)

        with self._lock:
            self._pending[future] = self.hand_over(packed(Order(call, arguments)), settle)
        future.add_done_callback(self._forget)
        return future

    def _answered(self, answer: Callable[[], bytes]) -> bytes:
        try:
            return answer()
        except Exception as error:
            raise self.loss(error) from error

    def _forget(self, future: "Future[Any]") -> None:
        with self._lock:
            handle = self._pending.pop(future, None)
        if future.cancelled() and handle is not None:
            self.give_up([handle])

    def stop(self) -> None:
        """Cancel all calls and their futures."""
        self._stopped = True
        with self._lock:
            pending = dict(self._pending)
        for future in pending:
            future.cancel()

    def share(self, slots: int) -> int:
        """Return an equal share: machines have no semaphore in common."""
        return max(1, slots // self.workers)

    def episodes(self) -> int:
        """Return 0: only whole calls are reported."""
        return 0

    def _handed_over(self) -> int:
        return self._limit if self._limit and not self._own else PREFETCH_PER_CORE * self.workers

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run the calls on all workers; the first error cancels all others."""
        calls = (self.submit(call, *each) for each in arguments)
        pending = set(islice(calls, self._handed_over()))
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                pending |= set(islice(calls, max(0, self._handed_over() - len(pending))))
                for future in done:
                    yield future.result()
        finally:
            for future in pending:
                future.cancel()
