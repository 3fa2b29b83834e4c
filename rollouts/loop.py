"""Rollouts: a plain loop for a policy that waits for nothing, and for a model a scheduler that keeps it busy.

The scheduler is one event loop with one queue for the episodes of all batches. As many as the policy accepts run
concurrently, each in its own environment. The next episode begins when one ends. When the last episode of a batch ends,
a separate thread delivers the batch to its receiver. If an environment allows only a few instances, its episodes wait
and episodes of other environments go first. Order and content of the records are equal in every way of playing.

When the run has to stop, batches with at least one finished episode are delivered as they are; their other episodes are
marked as pending.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import plugins
from ..core.errors import ServerGoneError
from ..environments.base import EnvConfig, PivotEnv, Task
from ..environments.turns import StudentPrompt
from .base import GROUP_SIZE, Policy, Status, TaskRollouts
from .episode import ENDS_THE_RUN, TaskRun, at_once
from .pool import EnvPool
from .supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that are delivered together, such as a shard or its pending episodes."""

    env_type: type[PivotEnv]
    config: EnvConfig
    tasks: Sequence[Task]
    rollouts: int = GROUP_SIZE
    """Samples per task: ``sample_idx`` 0 to ``rollouts - 1``."""
    only: Collection[str] | None = None
    """Ids of the episodes to run, None for all: a later run makes the pending ones alone."""
    run_id: str | Sequence[str] = ""
    """The run id of all episodes, or one per task."""
    prompt: StudentPrompt | None = None
    """The Student prompt; by default the one registered for the environment."""
    work: Any = None
    """Data of the receiver; the scheduler passes it through."""
    samples: Sequence[int] | None = None
    """The sample indices of every task, if they are not ``range(rollouts)``."""


Receive = Callable[[Batch, list[TaskRollouts]], None]
"""Receives a batch with one record per task in the order of ``tasks``: episodes in the order of ``sample_idx``, frames
and prompts in the order of their first use. If ``only`` names no episode of a task, its record has no episodes."""


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
    """Roll out one batch in its own event loop and return its records, one per task, as :data:`Receive` describes.

    Arguments: see :class:`Batch` and :func:`run_batches`, which also lists the errors raised.
    """
    batch = Batch(env_type, config, tasks, rollouts, only=only, run_id=run_id, prompt=prompt)
    return roll_out_batch(batch, policy, concurrency)


def roll_out_batch(batch: Batch, policy: Policy, concurrency: int | None = None) -> list[TaskRollouts]:
    """Roll out one batch and return its records: one episode after the other, if neither policy nor environment waits.

    The errors are those of :func:`run_batches`.
    """
    pool = EnvPool(batch.env_type, batch.config)
    if concurrency is None and not policy.served and not pool.blocks:
        opened = _OpenBatch(batch, policy, pool)
        for run, sample in opened.episodes:
            env = pool.take()
            episode = run.play(env, sample)
            at_once(pool.give_back(env, sound=episode.status is Status.COMPLETE), "the environment")
        at_once(pool.close(), "the environment")
        at_once(policy.aclose(), f"policy {policy.name}")
        return opened.collected()
    collected: list[TaskRollouts] = []

    def receive(_: Batch, records: list[TaskRollouts]) -> None:
        collected.extend(records)

    asyncio.run(run_batches([batch], policy, receive, concurrency=concurrency))
    return collected


async def run_batches(
    batches: Iterable[Batch] | AsyncIterator[Batch],
    policy: Policy,
    receive: Receive,
    *,
    concurrency: int | None = None,
    on_episode: Callable[[], None] = lambda: None,
) -> None:
    """Run the episodes of all batches and deliver each batch to ``receive`` when its last episode is over.

    Args:
        batches: requested one at a time, shortly before their episodes begin.
        policy: answers all turns; the scheduler closes it at the end.
        receive: called in a separate thread, one call at a time; an error it raises ends the run.
        concurrency: most concurrent episodes; by default what the policy accepts, which may change during the run.
        on_episode: called in the event loop after every episode.

    Raises:
        ServerGoneError, ConfigError, PluginError: no episode can continue; the module docstring says what is kept.
    """
    scheduler = _Scheduler(policy, receive, concurrency, on_episode)
    try:
        await scheduler.run(batches if isinstance(batches, AsyncIterator) else _each(batches))
    except BaseException as error:
        await scheduler.abandon(error)
        raise
    finally:
        await scheduler.close()
        await policy.aclose()


async def _each(batches: Iterable[Batch]) -> AsyncIterator[Batch]:
    for batch in batches:
        yield batch


class _OpenBatch:
    """A batch whose episodes are not all over."""

    def __init__(self, batch: Batch, policy: Policy, pool: EnvPool) -> None:
        self.batch, self.pool = batch, pool
        prompt = batch.prompt or plugins.load("prompts", batch.env_type.profile.name)
        ids = [batch.run_id] * len(batch.tasks) if isinstance(batch.run_id, str) else batch.run_id
        self.runs = [
            TaskRun(batch.env_type, batch.config, task, policy, prompt, run_id)
            for task, run_id in zip(batch.tasks, ids, strict=True)
        ]
        self.episodes = [
            (run, sample)
            for run in self.runs
            for sample in (range(batch.rollouts) if batch.samples is None else batch.samples)
            if batch.only is None or run.id_of(sample) in batch.only
        ]
        self.remaining = len(self.episodes)
        self.complete = 0

    def collected(self) -> list[TaskRollouts]:
        """Return the records, in the order of tasks and samples."""
        return [run.collected() for run in self.runs]


class _QueuedEpisode(NamedTuple):
    """An episode that has not begun."""

    batch: _OpenBatch
    run: TaskRun
    sample: int


class _Scheduler:
    """The state of one :func:`run_batches`."""

    def __init__(
        self, policy: Policy, receive: Receive, concurrency: int | None, on_episode: Callable[[], None]
    ) -> None:
        self._policy = policy
        self._receive = receive
        self._concurrency = concurrency
        self._on_episode = on_episode
        self._queue: deque[_QueuedEpisode] = deque()
        self._waiting: dict[EnvPool, deque[_QueuedEpisode]] = {}
        """Episodes of each pool that found no free environment."""
        self._open: list[_OpenBatch] = []
        self._supervisor = Supervisor()
        self._fetches, self._episodes = self._supervisor.group(), self._supervisor.group()
        self._deliveries = self._supervisor.group()
        self._exhausted = False
        self._writer = ThreadPoolExecutor(1, "pivot-batches")

    async def run(self, batches: AsyncIterator[Batch]) -> None:
        """Start episodes as the policy and the environments accept them, until all batches are delivered."""
        await self._supervisor.run(lambda: self._begin(batches))

    def _begin(self, batches: AsyncIterator[Batch]) -> None:
        while len(self._episodes) < self._most_episodes and (item := self._next()) is not None:
            item.batch.pool.lent += 1
            self._episodes.start(self._episode(item))
        if len(self._episodes) < self._most_episodes and not self._fetches and not self._exhausted:
            self._fetches.start(self._fetch(batches))

    @property
    def _most_episodes(self) -> int:
        return max(1, self._concurrency or self._policy.episodes_in_flight)

    async def _fetch(self, batches: AsyncIterator[Batch]) -> None:
        batch = await anext(batches, None)
        if batch is None:
            self._exhausted = True
            return
        opened = _OpenBatch(batch, self._policy, self._pool_of(batch))
        self._open.append(opened)
        if not opened.episodes:
            self._deliver(opened)
        self._queue.extend(_QueuedEpisode(opened, run, sample) for run, sample in opened.episodes)

    def _pool_of(self, batch: Batch) -> EnvPool:
        for pool in self._waiting:
            if pool.env_type is batch.env_type and pool.config == batch.config:
                return pool
        pool = EnvPool(batch.env_type, batch.config)
        self._waiting[pool] = deque()
        return pool

    def _next(self) -> _QueuedEpisode | None:
        """Return the first episode that may begin, None when there is none."""
        for pool, items in self._waiting.items():
            if items and pool.has_room:
                return items.popleft()
        while self._queue:
            item = self._queue.popleft()
            if item.batch.pool.has_room:
                return item
            self._waiting[item.batch.pool].append(item)
        return None

    async def _episode(self, item: _QueuedEpisode) -> None:
        opened, pool = item.batch, item.batch.pool
        env = pool.take()
        sound = False
        try:
            episode = await item.run.run_episode(env, item.sample, pool.call)
            sound = episode.status is Status.COMPLETE
        finally:
            await pool.give_back(env, sound=sound)
        opened.complete += sound
        opened.remaining -= 1
        self._on_episode()
        if opened.remaining == 0:
            self._deliver(opened)

    def _deliver(self, opened: _OpenBatch) -> None:
        self._open.remove(opened)
        loop = asyncio.get_running_loop()
        self._deliveries.start(
            loop.run_in_executor(self._writer, self._receive, opened.batch, opened.collected()),
        )

    async def abandon(self, error: BaseException) -> None:
        """Stop all episodes; deliver the batches that hold finished ones."""
        await self._supervisor.stop(self._episodes, self._fetches)
        if not isinstance(error, (*ENDS_THE_RUN, asyncio.CancelledError)):
            return  # the disk or the program failed: writing more would not help
        reason = error if isinstance(error, ServerGoneError) else ServerGoneError("the run was stopped")
        for opened in self._open:
            if opened.complete:
                for run, sample in opened.episodes:
                    run.give_up(sample, reason)
                self._receive(opened.batch, opened.collected())

    async def close(self) -> None:
        """Wait until the last batch is received and close the environments."""
        self._writer.shutdown()
        for pool in self._waiting:
            await pool.close()
