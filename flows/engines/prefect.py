"""The pipeline as a Prefect flow: one definition, run in process by ``pivot build`` or by a worker on a schedule.

A Prefect task is one stage of one shard (seconds to hours of work, never one episode). The work itself happens in a
process pool of the run, because task runners that start a process for each task cost more than a shard of puzzles.
Caching is left to the store's receipts: they also notice when an output file is gone.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect import get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run
from prefect.states import Crashed

from ...datasets.stages.base import ShardResult, Stage, run
from ...errors import StoreError
from ...storage import Storage
from .local import Execute, WorkerPool, finished

Result = TypeVar("Result")

NOTE = ".flow-run.json"
"""File in a store that is being built: the id of its flow run. A killed run leaves it there."""


@contextlib.contextmanager
def noted_run(storage: Storage) -> Iterator[None]:
    """Record this flow run in the store that it writes, and mark an earlier run that was killed as crashed.

    A killed process does not report its end, so its server would show the run as running for ever. The caller holds the
    lock of the store, so no other run writes it.
    """
    here, before = flow_run.id, None
    with contextlib.suppress(StoreError):  # missing or unreadable
        before = storage.read_json(NOTE)
    if isinstance(before, dict) and before.get("flow_run") not in (None, here):
        _end_killed(str(before["flow_run"]))
    storage.write_json(NOTE, {"flow_run": here})
    try:
        yield
    finally:
        storage.delete(NOTE)


def _end_killed(run: str) -> None:
    """Mark a flow run and its tasks as crashed, unless they have ended or the server does not know them."""
    message = "its process was killed; a later run of the same store found it"
    with contextlib.suppress(PrefectException, httpx.HTTPError, ValueError), get_client(sync_client=True) as client:
        state = client.read_flow_run(UUID(run)).state
        if state is not None and state.is_final():
            return
        filters = {"flow_runs": {"id": {"any_": [run]}}, "task_runs": {"state": {"type": {"any_": ALIVE}}}}
        for each in client.request("POST", "/task_runs/filter", json=filters).json():
            client.set_task_run_state(UUID(each["id"]), Crashed(message=message), force=True)
        client.set_flow_run_state(UUID(run), Crashed(message=message), force=True)


ALIVE = ["SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING"]
"""Types of states that are not final."""


@task(name="shard", task_run_name="{stage} {shard}", cache_policy=NO_CACHE, persist_result=False)
def run_shard(stage: str, shard: str, pool: WorkerPool, work: Callable[[], ShardResult]) -> ShardResult:
    """Run one stage of one shard on the run's process pool."""
    del stage, shard  # they name the task run
    return finished(pool.submit(work))


@dataclass(frozen=True, slots=True)
class _AsTasks:
    pool: WorkerPool

    def __call__(self, stages: Sequence[Stage]) -> Iterator[ShardResult]:
        # In a partial, because Prefect searches every part of an argument for futures.
        tasks = (run_shard.submit(each.title, each.shard.stem, self.pool, partial(run, each)) for each in stages)
        # A task runner may start any number of tasks at once, and the pool may be this process.
        yield from _in_turn(tasks, self.pool)


def _in_turn(tasks: Iterator[PrefectFuture[Result]], pool: WorkerPool) -> Iterator[Result]:
    """Start as many tasks at a time as the pool has workers, and yield their results in the order of completion."""
    running = list(islice(tasks, pool.workers))
    try:
        while running:
            ended = next(as_completed(running))
            running.remove(ended)
            running += islice(tasks, 1)
            yield ended.result()
    except (KeyboardInterrupt, TerminationSignal):
        pool.stop()  # before Prefect waits for the calls in work
        raise


def stream_as_tasks(
    pool: WorkerPool, stage: str
) -> Callable[[Callable[..., Result], Sequence[tuple[Any, ...]]], Iterator[Result]]:
    """Return a function that runs calls as tasks of the flow run; the last argument of each call is its shard."""

    def stream(call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        tasks = (run_call.submit(stage, each[-1].stem, pool, partial(call, *each)) for each in arguments)
        yield from _in_turn(tasks, pool)

    return stream


@task(name="shard", task_run_name="{stage} {shard}", cache_policy=NO_CACHE, persist_result=False)
def run_call(stage: str, shard: str, pool: WorkerPool, call: Callable[[], Any]) -> Any:
    """Run a call for one shard on the run's process pool."""
    del stage, shard  # they name the task run
    return next(iter(pool.stream(call, [()])))


def execute_as_tasks(pool: WorkerPool) -> Execute:
    """Run stages as tasks of the flow run, as many at a time as the pool has workers."""
    return _AsTasks(pool)
