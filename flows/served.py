"""The rollout stage of a policy that waits for a model: episodes of many shards at a time keep the model busy.

Worker processes that each asked for themselves would each hold a share of the model's slots and leave them idle at the
end of every shard. So one process asks, whoever plays: its event loop has all requests, the one limit on them and the
call cache. With a pool of several workers these play (:mod:`.spread`), and a slow simulator holds up its own process
alone; otherwise the same loop does both. Shards are written as they are finished, by the same functions and with the
same receipts as in a pool, so resume and kills work alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from ..datasets.config import Shard
from ..datasets.inputs import ROLLOUT
from ..datasets.progress import Reporter
from ..datasets.run import Run
from ..environments.base import Task
from ..rollouts.base import TaskRollouts
from ..rollouts.loop import Batch, run_batches
from ..rollouts.supervisor import run_without_gc_pauses
from ..storage import Address
from .engines.base import WorkerPool
from .spread import ShardsToPlay, batch_of, loops_on, roll_out_spread
from .stages import RolloutJob, ShardResult, store_rollouts


def roll_out_served(
    root: Address,
    run: Run,
    tasks: Mapping[Shard, Sequence[Task]],
    reporter: Reporter,
    on_shard: Callable[[Shard], None] | None = None,
    pool: WorkerPool | None = None,
) -> list[ShardResult]:
    """Roll out all shards; ``reporter`` hears of every episode, and ``on_shard`` of every shard that is stored.

    The workers of ``pool`` play where there are several; one of them is left for what is done beside.

    Raises:
        ServerGoneError: the model answers nobody any more; what is finished is stored, the next run goes on.
        StoreError: a shard cannot be written, its stored rows cannot be read back, or a worker died.
        ConfigError, PluginError: the policy cannot work with these settings.
    """
    shards = ShardsToPlay(root, run, tasks, reporter, on_shard)
    reporter.start(ROLLOUT, shards.episodes)
    if pool is not None and (loops := loops_on(pool, run, shards)):
        roll_out_spread(shards, pool, loops)
    _roll_out_here(shards)  # all of it, or what no worker could be reached for
    reporter.finish(ROLLOUT)
    return shards.results


def _roll_out_here(shards: ShardsToPlay) -> None:
    """Play in this process, in the loop that asks."""
    root, run, began = shards.root, shards.run, dict[Shard, float]()

    def batches() -> Iterator[Batch]:
        while (job := shards.next()) is not None:
            began[job.shard] = perf_counter()
            yield batch_of(run, job)

    def receive(batch: Batch, rollouts: list[TaskRollouts]) -> None:
        job: RolloutJob = batch.work
        stored = store_rollouts(root, run, job, rollouts)
        shards.stored(replace(stored, seconds=perf_counter() - began[job.shard]))

    run_without_gc_pauses(run_batches(batches(), run.policy(), receive, on_episode=shards.ended))
