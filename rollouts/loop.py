"""Rollouts of a batch: one episode after the other in a plain loop, if nothing has to wait.

For a policy that waits for a model, or an environment that blocks, :mod:`.scheduler` plays many episodes at a time.
Order and content of the records are equal in both ways.
"""

import asyncio
from collections.abc import Collection, Sequence

from ..environments.base import EnvConfig, PivotEnv, Task
from ..environments.turns import StudentPrompt
from .base import GROUP_SIZE, Batch, Policy, Status, TaskRollouts
from .episode import at_once, close_env, new_env, open_batch


def roll_out_tasks(
    env_type: type[PivotEnv],
    config: EnvConfig,
    tasks: Sequence[Task],
    policy: Policy,
    rollouts: int = GROUP_SIZE,
    *,
    concurrency: int | None = None,
    only: Collection[str] | None = None,
    run_id: str | Sequence[str] = "",
    prompt: StudentPrompt | None = None,
) -> list[TaskRollouts]:
    """Roll out one batch in its own event loop and return its records, one per task, as :data:`.Receive` describes.

    Arguments: see :class:`.Batch` and :func:`.run_batches`, which also lists the errors raised.
    """
    batch = Batch(env_type, config, tasks, rollouts, only=only, run_id=run_id, prompt=prompt)
    return roll_out_batch(batch, policy, concurrency)


def roll_out_batch(batch: Batch, policy: Policy, concurrency: int | None = None) -> list[TaskRollouts]:
    """Roll out one batch and return its records, one per task.

    The errors are those of :func:`.run_batches`.
    """
    first = None if policy.served or concurrency is not None else new_env(batch.env_type, batch.config)
    if first is not None and not first.blocks:
        env: PivotEnv | None = first
        runs, episodes = open_batch(batch, policy)
        for run, sample in episodes:
            env = env or new_env(batch.env_type, batch.config)
            if run.play(env, sample).status is not Status.COMPLETE:  # the environment may be broken
                close_env(env)
                env = None
        if env is not None:
            close_env(env)
        at_once(policy.aclose(), f"policy {policy.name}")
        return [run.collected() for run in runs]
    from .scheduler import run_batches  # noqa: PLC0415 - few policies wait

    if first is not None:
        close_env(first)
    collected: list[TaskRollouts] = []

    def receive(_: Batch, records: list[TaskRollouts]) -> None:
        collected.extend(records)

    asyncio.run(run_batches([batch], policy, receive, concurrency=concurrency))
    return collected
