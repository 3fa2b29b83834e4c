"""The engine ``dask``: ``--engine dask``, with ``--address`` for a scheduler that is running.

A shard is a Dask task. The scheduler moves it to another worker when its own is lost.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import resource_tracker
from typing import Any

from ...core.errors import ConfigError, StoreError
from ...core.storage import Address
from ...models.extras import need
from .base import Engine, WorkerPool
from .cluster import ClusterPool, Settle, carry_out
from .local import available_cores, interrupts_held
from .nodes import ready_pool
from .reach import LOOPBACK, refuse_unreachable

ADDRESS = "DASK_SCHEDULER_ADDRESS"
"""Environment variable with the address, which Dask's own clients read, too."""

_TRIMMING = "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_"
"""Setting of Dask for processes that return every freed picture to the system: they take half as long again."""

CONNECT_SECONDS = 10.0
"""Longest wait for a scheduler that listens, and for its first worker."""


class DaskEngine(Engine):
    """Shards as Dask tasks."""

    @contextlib.contextmanager
    def pool(self, environments: Sequence[str], store: Address, *, writes: bool) -> Iterator[WorkerPool]:
        """Connect to the scheduler, or start one with its workers for this run."""
        distributed = need("distributed", "dask")
        address = self.settings.address or os.environ.get(ADDRESS, "")
        limit: int = self.settings.workers
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        with contextlib.ExitStack() as stack:
            at = address or stack.enter_context(_cluster_here(distributed, limit or available_cores()))
            pool = DaskPool(stack.enter_context(_client_of(distributed, at)), limit, address)
            _refuse_threads(pool.threads(), address)
            yield stack.enter_context(ready_pool(pool, environments, store, writes=writes))


@contextlib.contextmanager
def _cluster_here(distributed: Any, workers: int) -> Iterator[Any]:
    """Start a scheduler in this process and workers on loopback, with keys of their own."""
    # The thread that starts workers blocks Ctrl-C, and they inherit that. Starting multiprocessing's tracker would
    # unblock it, so the tracker is started first.
    resource_tracker.ensure_running()
    with interrupts_held(), need("dask", "dask").config.set({_TRIMMING: None}):
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host=LOOPBACK,
            security=True,
            dashboard_address=f"{LOOPBACK}:0",
            memory_limit=None,
            silence_logs=logging.CRITICAL + 1,
        )
    with cluster:
        yield cluster


@contextlib.contextmanager
def _client_of(distributed: Any, at: Any) -> Iterator[Any]:
    if isinstance(at, str):
        refuse_unreachable(at, "Dask scheduler")
        _check_scheduler(distributed, at)
    with distributed.Client(at, timeout=CONNECT_SECONDS, set_as_default=False) as client:
        yield client


def _check_scheduler(distributed: Any, address: str) -> None:
    """Request the identity of the scheduler; a client would retry for minutes.

    Raises:
        ConfigError: no scheduler answers.
    """

    async def identify() -> Any:
        options = distributed.Security().get_connection_args("client")
        comm = await distributed.comm.connect(address, timeout=CONNECT_SECONDS, **options)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await comm.read()
        finally:
            comm.abort()

    async def identify_in_time() -> Any:
        return await asyncio.wait_for(identify(), CONNECT_SECONDS)

    try:
        identity = asyncio.run(identify_in_time())
        problem = "" if identity.get("type") == "Scheduler" else f"there is a {identity.get('type')}"
    except Exception as error:  # noqa: BLE001 - any program may listen there
        problem = " ".join(str(error).split())[:300] or "what listens there does not answer"
    if problem:
        raise ConfigError(
            f"no Dask scheduler can be used at {address}: {problem}; give what `dask scheduler` prints, such as "
            "tcp://HOST:8786"
        )


def _refuse_threads(threads: Mapping[str, int], address: str) -> None:
    """Refuse workers that run several calls in one process.

    Raises:
        ConfigError: there are such workers, or none at all.
    """
    if not threads:
        raise ConfigError(
            f"the Dask scheduler at {address} has no workers; start some with: dask worker {address} "
            "--nworkers CORES --nthreads 1"
        )
    for worker, number in threads.items():
        if number != 1:
            raise ConfigError(
                f"the Dask worker {worker} has {number} threads, expected 1, because solvers and environments "
                f"need a process each; start {number} processes instead: dask worker {address} --nworkers {number} "
                "--nthreads 1"
            )


class DaskPool(ClusterPool):
    """The workers of a Dask scheduler."""

    def __init__(self, client: Any, limit: int, address: str) -> None:
        """Use the connection ``client``."""
        super().__init__(limit, address)
        self._client = client

    def hand_over(self, order: bytes, settle: Settle) -> Any:
        """Make it a task."""
        task = self._client.submit(carry_out, order, pure=False)
        task.add_done_callback(lambda done: settle(done.result))
        return task

    def give_up(self, handles: Sequence[Any]) -> None:
        """Cancel calls that have not begun; the result of a running call is dropped."""
        self._client.cancel(list(handles), force=True)

    def ask_nodes(self, order: bytes) -> Mapping[str, Callable[[], bytes]]:
        """Run it on every worker process: each may have been started in another environment."""
        answers: dict[str, Any] = self._client.run(carry_out, order, on_error="return")
        return {worker: partial(_result, answer) for worker, answer in answers.items()}

    def threads(self) -> dict[str, int]:
        """Return the number of threads of every worker, after waiting for the first."""
        with contextlib.suppress(TimeoutError):
            self._client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        return dict(self._client.nthreads())

    def cores(self) -> int:
        """Return the number of worker processes."""
        return len(self._client.nthreads())

    def loss(self, error: Exception) -> StoreError:
        """Return the error for workers that were lost more often than calls run again, or for a lost scheduler."""
        kind, message = type(error).__name__, " ".join(str(error).split())[:300]
        return StoreError(
            f"Dask could not run a shard ({kind}: {message}); see to scheduler and workers (memory, if the system "
            "ended them) and run the same command again; finished shards are kept"
        )


def _result(answer: bytes | Exception) -> bytes:
    if isinstance(answer, Exception):
        raise answer
    return answer
