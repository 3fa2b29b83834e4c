"""The rollout stage of a policy that waits for a model: all shards in one event loop of this process.

Worker processes would each hold a share of the model's slots and leave them idle at the end of every shard; one loop
keeps all of them full, and a request costs it a few milliseconds of one core. Shards are written as they are finished,
by the same functions and with the same receipts as in a pool, so resume and kills work alike.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..datasets.config import RunConfig, Shard, env_config, environment
from ..datasets.parts import make_policy
from ..datasets.progress import Reporter
from ..environments.base import Task
from ..rollouts.base import TaskRollouts
from ..rollouts.loop import Batch, run_batches
from .stages import ROLLOUT, RolloutJob, ShardResult, rollout_job, store_rollouts


def roll_out_served(
    root: Path, config: RunConfig, tasks: Mapping[Shard, Sequence[Task]], reporter: Reporter
) -> list[ShardResult]:
    """Roll out all shards; ``reporter`` hears of every episode.

    Raises:
        ServerGoneError: the model answers nobody any more; what is finished is stored, the next run goes on.
        StoreError: a shard cannot be written, or its stored rows cannot be read back.
        ConfigError, PluginError: the policy cannot work with these settings.
    """
    policy = make_policy(config.policy)
    settings = {name: env_config(name, run.settings) for name, run in config.environments.items()}
    results: list[ShardResult] = []
    episodes = {shard: (shard.stop - shard.first) * config.rollouts for shard in tasks}
    reporter.start(ROLLOUT, sum(episodes.values()))

    def batches() -> Iterator[Batch]:
        for shard, levels in tasks.items():
            job = rollout_job(root, config, shard, levels, policy)
            if isinstance(job, ShardResult):
                results.append(job)
                reporter.advance(ROLLOUT, episodes[shard])
                continue
            if job.owed is not None:
                reporter.advance(ROLLOUT, episodes[shard] - len(job.owed))
            env_type, config_of_env = environment(shard.env), settings[shard.env]
            yield Batch(env_type, config_of_env, levels, config.rollouts, job.owed, config.run_id, work=job)

    def receive(batch: Batch, rollouts: list[TaskRollouts]) -> None:
        job: RolloutJob = batch.work
        results.append(store_rollouts(root, config, job, rollouts))

    asyncio.run(run_batches(batches(), policy, receive, on_episode=lambda: reporter.advance(ROLLOUT, 1)))
    reporter.finish(ROLLOUT)
    return results
