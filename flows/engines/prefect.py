"""Calls about shards as tasks of a Prefect flow run.

A Prefect task is one call about one shard (seconds to hours of work, never one episode). The work itself happens in a
process pool of the run, because task runners that start a process for each task cost more than a shard of puzzles.
Caching is left to the store's receipts: they also notice when an output file is gone.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import TerminationSignal
from prefect.futures import as_completed

from .base import Result, WorkerPool
from .processes import finished


@task(name="shard", task_run_name="{stage} {shard}", cache_policy=NO_CACHE, persist_result=False)
def run_shard(stage: str, shard: str, pool: WorkerPool, work: Callable[[], Any]) -> Any:
    """Run a call about one shard on the run's process pool."""
    del stage, shard  # they name the task run
    return finished(pool.submit(work))


@dataclass(frozen=True, slots=True)
class TaskPool:
    """A pool that streams calls as tasks of the flow run; the first argument of a call is its stage."""

    pool: WorkerPool

    @property
    def workers(self) -> int:
        """Number of calls that run at the same time."""
        return self.pool.workers

    def submit(self, call: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Submit a call, without a task."""
        return self.pool.submit(call, *arguments)

    def stop(self) -> None:
        """Cancel the running calls."""
        self.pool.stop()

    def stream(self, call: Callable[..., Result], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
        """Start as many tasks at a time as the pool has workers, and yield results in the order of completion."""
        # In a partial, because Prefect searches every part of an argument for futures. A task runner may start any
        # number of tasks at once, and the pool may be this process.
        tasks = (
            run_shard.submit(each[0].title, each[0].shard.stem, self.pool, partial(call, *each)) for each in arguments
        )
        running = list(islice(tasks, self.workers))
        try:
            while running:
                ended = next(as_completed(running))
                running.remove(ended)
                running += islice(tasks, 1)
                yield ended.result()
        except (KeyboardInterrupt, TerminationSignal):
            self.stop()  # before Prefect waits for the calls in work
            raise

    def share(self, slots: int) -> int:
        """Share the slots of a model server."""
        return self.pool.share(slots)

    def episodes(self) -> int:
        """Return how many episodes are over."""
        return self.pool.episodes()
