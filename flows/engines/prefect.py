"""The pipeline as a Prefect flow: one definition, run in process by ``pivot build`` or by a worker on a schedule.

A Prefect task is one stage of one shard (seconds to hours of work, never one episode). The work itself happens in a
process pool of the run, because task runners that start a process for each task cost more than a shard of puzzles.
Caching is left to the store's receipts: they also notice when an output file is gone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed

from ...datasets.progress import STAGE_NAMES, Lines
from ..stages import ShardResult
from .local import Call, Execute, WorkerPool, finished


def flow_log() -> Lines:
    """Return what reports to the flow run's log."""
    log = get_run_logger()
    return Lines(lambda line: log.info("%s", line), STAGE_NAMES)


@task(name="shard", task_run_name="{stage} {shard}", cache_policy=NO_CACHE, persist_result=False)
def run_shard(stage: str, shard: str, pool: WorkerPool, call: Call, arguments: tuple[Any, ...]) -> ShardResult:
    """Run one stage of one shard on the run's process pool."""
    del stage, shard  # they name the task run
    return finished(pool.submit(call, *arguments))


@dataclass(frozen=True, slots=True)
class _AsTasks:
    pool: WorkerPool

    def __call__(self, stage: str, call: Call, arguments: Sequence[tuple[Any, ...]]) -> Iterator[ShardResult]:
        # arguments[2] of every stage is the shard
        tasks = (run_shard.submit(stage, each[2].stem, self.pool, call, each) for each in arguments)
        # A task runner may start any number of tasks at once, and the pool may be this process.
        running = list(islice(tasks, self.pool.workers))
        try:
            while running:
                ended = next(as_completed(running))
                running.remove(ended)
                running += islice(tasks, 1)
                yield ended.result()
        except KeyboardInterrupt:
            self.pool.stop()  # before Prefect waits for the calls in work
            raise


def execute_as_tasks(pool: WorkerPool) -> Execute:
    """Run stages as tasks of the flow run, as many at a time as the pool has workers, whatever the task runner."""
    return _AsTasks(pool)
