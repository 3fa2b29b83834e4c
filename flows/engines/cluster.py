"""What the engines of many machines have in common: calls that travel, and a pool of workers anywhere.

A call travels as bytes and comes back as bytes, so no scheduler has to know our types, and an error keeps its own. The
scheduler of the cluster alone decides where a call runs, and runs it again elsewhere when its node is lost: a shard
writes whole files and its receipt last, so a second run finds it done or makes the same bytes.

Prefect's own runners for clusters (``RayTaskRunner`` of prefect-ray, ``DaskTaskRunner`` of prefect-dask) run its task
engine on the workers. Each of them then has to reach the Prefect server; one that cannot starts a server of its
own, ten seconds a worker, and its task runs are never seen. They serve the tasks of a flow only, while relabelling and
verification run without a flow, and the event loop of a served teacher hands over calls beside the tasks. So here the
tasks stay with the driver, which names and reports each, and what they wait for is done by the cluster.
"""

import contextlib
import os
import pickle
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ...datasets.stages.base import ShardResult
from ...errors import StoreError
from .base import Call, Result
from .reach import hosts_towards

OUR_VARIABLES = "PIVOT_"
"""Environment variables that travel with a call begin so; one that a worker was started with stays."""

AHEAD = 2
"""Calls of a stream for each core that are handed over at a time, so that the next one is there when one ends; with a
limit on the calls at a time, as many as that."""

RETRIES = 3
"""How often a call is run again when the node or process that ran it is lost. One that kills whoever runs it ends."""


MOST_WARMED = 32
"""Workers that are made ready ahead; in a large cluster they wait for the first shards anyway."""


# Calls that travel


@dataclass(frozen=True, slots=True)
class Order:
    """A call on its way to a worker."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    folder: str = field(default_factory=os.getcwd)
    """Where the driver runs; relative paths, of the store and in settings, are meant from there."""
    variables: Mapping[str, str] = field(
        default_factory=lambda: {name: text for name, text in os.environ.items() if name.startswith(OUR_VARIABLES)}
    )


class WorkerTracebackError(Exception):
    """The traceback of an error on a worker, as its cause: it names the files of plugins."""

    def __init__(self, text: str) -> None:
        """Hold the text of the traceback."""
        super().__init__(f'\n"""\n{text}"""')


_one_at_a_time = threading.Lock()


def carry_out(order: bytes) -> bytes:
    """Carry out a pickled :class:`Order` in this process; return its pickled result or error, and a traceback.

    One at a time: environments and solvers are no business of several threads.
    """
    with _one_at_a_time:
        try:
            unpacked: Order = pickle.loads(order)  # noqa: S301 - from our own driver, over the cluster's connection
            for name, text in unpacked.variables.items():
                os.environ.setdefault(name, text)
            with _in_folder(unpacked.folder):
                return pickle.dumps((unpacked.call(*unpacked.arguments), None, ""))
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            return pickle.dumps((None, portable(error), traceback.format_exc()))


@contextlib.contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Work in the driver's folder where this machine has it; the check of the store tells what is not shared."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(contextlib.chdir(folder))
        yield


def portable(error: Exception) -> Exception:
    """Return an error as it can travel: itself, or what it says."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled a moment before
    except Exception:  # noqa: BLE001 - an error that does not travel
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def get_ready(names: tuple[str, ...]) -> None:
    """On a worker: import environments."""
    from ...datasets.config import environment  # noqa: PLC0415 - only a worker pays for it here

    for name in names:
        environment(name)


def packed(order: Order) -> bytes:
    """Return an order as it travels."""
    return pickle.dumps(order)


def unpacked(answer: bytes) -> Any:
    """Return the result that :func:`carry_out` packed, or raise its error."""
    result, error, text = pickle.loads(answer)  # noqa: S301 - from our own worker, over the cluster's connection
    if error is not None:
        raise error from WorkerTracebackError(text)
    return result


# The pool


Settle = Callable[[Callable[[], bytes]], None]
"""Called once with how to get the answer of a call; what that raises is the cluster's own error."""


class ClusterPool(ABC):
    """Workers of a cluster; a subclass says how a call is handed to its scheduler."""

    def __init__(self, limit: int, address: str) -> None:
        """Run at most ``limit`` calls at a time, 0 for one a core of the cluster, which is at ``address``."""
        self._limit = limit
        self.hosts = hosts_towards(address)
        self._pending: dict[Future[Any], Any] = {}
        self._lock = threading.Lock()
        self._stopped = False

    @abstractmethod
    def hand_over(self, order: bytes, settle: Settle) -> Any:
        """Give ``carry_out(order)`` to the scheduler, which calls ``settle``, from any thread; return a handle."""

    @abstractmethod
    def give_up(self, handles: Sequence[Any]) -> None:
        """Take calls back, also those in work where the scheduler can."""

    @abstractmethod
    def ask_nodes(self, order: bytes) -> Mapping[str, Callable[[], bytes]]:
        """Have ``carry_out(order)`` run on every node that would get calls; return how to get each one's answer."""

    @abstractmethod
    def cores(self) -> int:
        """Calls that the cluster can run at the same time as it is now."""

    @abstractmethod
    def loss(self, error: Exception) -> StoreError:
        """Say what an error of the cluster itself means, and what to do."""

    @property
    def workers(self) -> int:
        """Calls that run at the same time."""
        return self._limit or max(1, self.cores())

    def warm(self, environments: Sequence[str]) -> None:
        """Let workers import what shards of these environments need, while the driver still gets ready."""
        for _ in range(min(self.workers, MOST_WARMED)):
            self.beside(get_ready, tuple(environments))

    def submit(self, call: Call, *arguments: Any) -> "Future[ShardResult]":
        """Hand over one call."""
        return self.beside(call, *arguments)

    def beside(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Hand over one call; a future that is cancelled gives it up."""
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
        """Give up all calls; whoever waits for one is told."""
        self._stopped = True
        with self._lock:
            pending = dict(self._pending)
        for future in pending:
            future.cancel()

    def _handed_over(self) -> int:
        return self._limit or AHEAD * self.workers

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run the calls on all workers; the first error gives up all others."""
        calls = (self.beside(call, *each) for each in arguments)
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
