"""Roll out with a policy that waits for a model: concurrent episodes of many shards keep the model busy.

Worker processes with requests of their own would each hold a share of the model's slots and leave them idle at the end
of every shard. Therefore one process sends all requests: its event loop holds the one limit on them and the call cache.
With a pool of several workers, these play (:mod:`.spread`), and a slow simulator delays its own process alone.
Otherwise the same loop also plays. Finished shards are written by the same functions and with the same receipts as in a
pool, so resume and kills work alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from ..core.progress import Reporter
from ..datasets.store.config import Shard
from ..datasets.store.inputs import ROLLOUT
from ..datasets.store.stages.base import ShardResult
from ..datasets.store.stages.rollout import RolloutJob, store_rollouts
from ..datasets.store.store import Store
from ..environments.base import Task
from ..rollouts.base import TaskRollouts
from ..rollouts.loop import Batch, run_batches
from ..rollouts.supervisor import run_without_gc_pauses
from .engines.base import WorkerPool
from .spread import PendingShards, batch_of, roll_out_spread, worker_loops


def roll_out_served(
    store: Store,
    tasks: Mapping[Shard, Sequence[Task]],
    reporter: Reporter,
    on_shard: Callable[[Shard], None] | None = None,
    pool: WorkerPool | None = None,
) -> list[ShardResult]:
    """Roll out all shards; report every episode to ``reporter`` and every stored shard to ``on_shard``.

    If ``pool`` has several workers, they play, except for one that is reserved for labelling.

    Raises:
        ServerGoneError: the model no longer answers; finished shards are stored, and the next run resumes.
        StoreError: a shard cannot be written, its stored rows cannot be read back, or a worker died.
        ConfigError, PluginError: the policy cannot work with these settings.
    """
    shards = PendingShards(store, tasks, reporter, on_shard)
    reporter.start(ROLLOUT, shards.episodes)
    if pool is not None and (loops := worker_loops(pool, shards)):
        roll_out_spread(shards, pool, loops)
    _roll_out_here(shards)  # all shards, or those whose workers could not connect
    reporter.finish(ROLLOUT)
    return shards.results


def _roll_out_here(shards: PendingShards) -> None:
    """Play in this process, in the event loop that asks the model."""
    store, began = shards.store, dict[Shard, float]()

    def batches() -> Iterator[Batch]:
        while (job := shards.next()) is not None:
            began[job.shard] = perf_counter()
            yield batch_of(store.run, job)

    def receive(batch: Batch, rollouts: list[TaskRollouts]) -> None:
        job: RolloutJob = batch.work
        stored = store_rollouts(store, job, rollouts)
        shards.stored(replace(stored, seconds=perf_counter() - began[job.shard]))

    run_without_gc_pauses(run_batches(batches(), store.run.policy(), receive, on_episode=shards.ended))
