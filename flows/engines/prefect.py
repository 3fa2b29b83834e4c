"""Stages of shards as tasks of a Prefect flow run.

A Prefect task is one stage of one shard (seconds to hours of work, never one episode). The work itself happens in a
process pool of the run, because task runners that start a process for each task cost more than a shard of puzzles.
Caching is left to the store's receipts: they also notice when an output file is gone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture, as_completed

from ...datasets.store.stages.base import ShardResult, Stage, run
from .local import Execute, WorkerPool, finished

Result = TypeVar("Result")


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
