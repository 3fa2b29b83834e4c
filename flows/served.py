"""The rollout stage of a policy that waits for a model: all shards in one event loop of this process.

Worker processes would each hold a share of the model's slots and leave them idle at the end of every shard; one loop
keeps all of them full, and a request costs it a few milliseconds of one core. Shards are written as they are finished,
by the same functions and with the same receipts as in a pool, so resume and kills work alike.
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
from ..rollouts.steady import run_steadily
from ..storage import Address
from .stages import RolloutJob, ShardResult, rollout_job, store_rollouts, tell_stored


def roll_out_served(
    root: Address,
    run: Run,
    tasks: Mapping[Shard, Sequence[Task]],
    reporter: Reporter,
    on_shard: Callable[[Shard], None] | None = None,
) -> list[ShardResult]:
    """Roll out all shards; ``reporter`` hears of every episode, and ``on_shard`` of every shard that is stored.

    Raises:
        ServerGoneError: the model answers nobody any more; what is finished is stored, the next run goes on.
        StoreError: a shard cannot be written, or its stored rows cannot be read back.
        ConfigError, PluginError: the policy cannot work with these settings.
    """
    policy, rollouts_a_task = run.policy(), run.config.rollouts
    results: list[ShardResult] = []
    began: dict[Shard, float] = {}
    episodes = {shard: (shard.stop - shard.first) * rollouts_a_task for shard in tasks}
    reporter.start(ROLLOUT, sum(episodes.values()))

    def batches() -> Iterator[Batch]:
        for shard, levels in tasks.items():
            job = rollout_job(root, run, shard, levels)
            if isinstance(job, ShardResult):
                results.append(job)
                tell_stored(reporter, job)
                reporter.advance(ROLLOUT, episodes[shard])
                continue
            if job.owed is not None:
                reporter.advance(ROLLOUT, episodes[shard] - len(job.owed))
            env = run.env(shard.env)
            began[shard] = perf_counter()
            yield Batch(
                env.type, env.config, levels, rollouts_a_task, job.owed, run.run_id, prompt=env.prompt, work=job
            )

    def receive(batch: Batch, rollouts: list[TaskRollouts]) -> None:
        job: RolloutJob = batch.work
        stored = store_rollouts(root, run, job, rollouts)
        results.append(replace(stored, seconds=perf_counter() - began[job.shard]))
        tell_stored(reporter, results[-1])
        if on_shard is not None:
            on_shard(job.shard)

    run_steadily(run_batches(batches(), policy, receive, on_episode=lambda: reporter.advance(ROLLOUT, 1)))
    reporter.finish(ROLLOUT)
    return results
