"""The calls of a run on the machines of a cluster, as the library's futures: code shared by ``ray`` and ``dask``.

A call travels pickled, with the versions and the source digest of the driver and the digest of the store's config, so a
worker with other programs, or without the store, refuses it, also one that joins late. An error keeps its type and
brings its traceback. The scheduler of the cluster decides where a call runs, and runs it again elsewhere when its node
is lost: a shard writes whole files and its receipt last, so a second run finds it done or makes the same bytes.
"""

import contextlib
import os
import pickle
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...core.admission import allowed_names
from ...core.errors import ConfigError, StoreError
from ...core.storage import Address, open_storage
from ...datasets.store.location import RUN
from .base import Result
from .processes import Admitted
from .versions import other_versions, versions_here

OUR_VARIABLES = "PIVOT_"
"""Prefix of the environment variables that are sent with a call; a variable that the worker has already wins."""
PREFETCH_PER_CORE = 2
"""Submitted calls of a stream per core, so that the next one is there when one ends; in a running cluster, a limit on
concurrent calls overrides it."""
RETRIES = 3
"""Maximum number of repetitions of a call whose node or process is lost, so that a fatal call is not repeated
forever."""
LOOPBACK = "127.0.0.1"
PATIENCE = 10.0
"""Seconds until a cluster has to answer."""

_one_at_a_time = threading.Lock()


# Calls that are sent to workers


def packed(call: Callable[..., Any], arguments: tuple[Any, ...], store: Address) -> bytes:
    """Return a pickled order: the versions that a worker has to have, and the pickled call.

    With the call go the driver's working folder, where relative paths of the store and in settings start, its own
    environment variables, and the digest of the store's config, None if the store has none yet.
    """
    ours = {name: text for name, text in os.environ.items() if name.startswith(OUR_VARIABLES)}
    call_in_place = (call, arguments, str(Path.cwd()), ours, store, _config_of(store))
    return pickle.dumps((versions_here(), pickle.dumps(call_in_place)))


def _config_of(store: Address) -> str | None:
    storage = open_storage(store)
    return None if storage.stat(RUN) is None else storage.record(RUN).sha256


def carry_out(order: bytes) -> bytes:
    """Run a packed order on a worker; return its pickled result or error, and a traceback.

    Orders run one at a time: environments and solvers are not safe in several threads.
    """
    with _one_at_a_time:
        try:
            return pickle.dumps((_carried_out(order), None, ""))
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            return pickle.dumps((None, _portable(error), traceback.format_exc()))


def _carried_out(order: bytes) -> Any:
    versions, sent = pickle.loads(order)  # noqa: S301 - from our own driver, over the cluster's connection
    host = socket.gethostname()
    if other := other_versions(versions_here(), versions):
        raise ConfigError(
            f"a worker on {host} has other versions than the driver, which may make other bytes: {other}; install the "
            "same there, start its workers again, and run the same command again"
        )
    call, arguments, folder, variables, store, config = pickle.loads(sent)  # noqa: S301 - as above
    for name, text in variables.items():
        os.environ.setdefault(name, text)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the check of the store reports a missing folder
            stack.enter_context(contextlib.chdir(folder))
        if config is not None and _config_of(store) != config:
            raise StoreError(
                f"a worker on {host} does not share the store: it finds another {RUN} at {store}, or none; "
                "choose an --out on a filesystem that all nodes mount at the same place"
            )
        return call(*arguments)


def _portable(error: Exception) -> Exception:
    """Return an error that can be pickled: itself, or a RuntimeError with its message."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled a moment before
    except Exception:  # noqa: BLE001 - an error that does not travel
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


class WorkerTracebackError(Exception):
    """Traceback of an error on a worker, attached as its cause: it names the files of plugins."""

    def __init__(self, text: str) -> None:
        """Hold the text of the traceback."""
        super().__init__(f'\n"""\n{text}"""')


# The pool


class ClusterPool:
    """Workers of a cluster."""

    def __init__(
        self,
        send: Callable[[bytes], tuple["Future[bytes]", Callable[[], Any]]],
        cores: Callable[[], int],
        store: Address,
        limit: int,
        *,
        own: bool,
    ) -> None:
        """Run at most ``limit`` calls at a time, 0 for one per core of the cluster.

        Args:
            send: submits ``carry_out(order)`` to the scheduler; returns the future answer, and a function that cancels.
            cores: returns the number of calls that the cluster can run at the same time now.
            store: the store that the calls read or write.
            limit: most calls at a time.
            own: whether the cluster was started for this run, with ``limit`` cores: more calls may then wait in it.
        """
        self._send, self._cores, self._store, self._limit, self._own = send, cores, store, limit, own
        self._pending: set[Future[Any]] = set()
        self._stopped = False

    @property
    def workers(self) -> int:
        """Number of calls that run at the same time."""
        return self._limit or max(1, self._cores())

    def submit(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Submit a call; cancelling the future cancels the call."""
        future: Future[Result] = Future()
        if self._stopped:
            future.set_exception(StoreError("the run was stopped"))
            return future
        answer, cancel = self._send(packed(Admitted(allowed_names(), call), arguments, self._store))

        def settle(answer: "Future[bytes]") -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                received = answer.result()
            except Exception as error:  # noqa: BLE001 - handed on by the future
                kind, message = type(error).__name__, " ".join(str(error).split())[:300]
                lost = StoreError(
                    f"the cluster could not run a shard ({kind}: {message}); check its nodes (memory, if the system "
                    "ended their processes) and run the same command again; finished shards are kept"
                )
                lost.__cause__ = error
                future.set_exception(lost)
                return
            result, failure, text = pickle.loads(received)  # noqa: S301 - from our own worker
            if failure is None:
                future.set_result(result)
            else:
                failure.__cause__ = WorkerTracebackError(text)
                future.set_exception(failure)

        def forget(future: "Future[Result]") -> None:
            self._pending.discard(future)
            if future.cancelled():
                cancel()

        self._pending.add(future)
        future.add_done_callback(forget)
        answer.add_done_callback(settle)
        return future

    def stop(self) -> None:
        """Cancel all calls and their futures."""
        self._stopped = True
        for future in list(self._pending):
            future.cancel()

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Run the calls on all workers; the first error cancels all others."""
        calls = (self.submit(call, *each) for each in arguments)
        pending = set(islice(calls, self._most()))
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                pending |= set(islice(calls, max(0, self._most() - len(pending))))
                for future in done:
                    yield future.result()
        finally:
            for future in pending:
                future.cancel()

    def _most(self) -> int:
        return self._limit if self._limit and not self._own else PREFETCH_PER_CORE * self.workers

    def share(self, slots: int) -> int:
        """Return an equal share: machines have no semaphore in common."""
        return max(1, slots // self.workers)

    def episodes(self) -> int:
        """Return 0: only whole calls are reported."""
        return 0


def refuse_unreachable(address: str, what: str) -> None:
    """Connect to ``address`` once, if it has a host and a port: clients of clusters would try for minutes.

    Raises:
        ConfigError: the address is malformed, or nothing answers there.
    """
    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.hostname is not None and parts.port is not None:
            socket.create_connection((parts.hostname, parts.port), PATIENCE).close()
    except ValueError as error:
        raise ConfigError(f"--address {address}: {error}; expected HOST:PORT of a {what}") from error
    except OSError as error:
        raise ConfigError(
            f"nothing answers at {address} ({error.strerror or error}), expected a {what}; start it, give its address "
            "with --address, or leave that out for workers on this machine"
        ) from error
