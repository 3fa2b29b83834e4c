"""The scheduler of rollouts: one event loop that keeps a model busy from the first episode to the last.

The episodes of all batches form one queue. As many as the policy can take are in flight, each with an environment of
its own; the next begins when one ends, and a batch is handed on, in a thread beside the loop, when its last episode is
over. Where an environment allows a few instances only, its episodes wait for them and those of others go first. Order
and content of the records are equal for any number in flight.

When the run has to stop, batches that hold finished episodes are handed on as they are, the rest of them marked as
owed.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import plugins
from ..environments.base import EnvConfig, PivotEnv, Task
from ..errors import ServerGoneError
from .base import GROUP_SIZE, Policy, Status, StudentPrompt, TaskRollouts
from .episode import ENDS_THE_RUN, TaskRun
from .pool import EnvPool


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that are handed on together, such as a shard, or what it still owes."""

    env_type: type[PivotEnv]
    config: EnvConfig
    tasks: Sequence[Task]
    rollouts: int = GROUP_SIZE
    """Samples a task, ``sample_idx`` 0 to ``rollouts - 1``."""
    only: Collection[str] | None = None
    """Ids of the episodes to run, None for all: how a later run makes the ones still owed."""
    run_id: str = ""
    prompt: StudentPrompt | None = None
    """The Student prompt; by default the one registered for the environment."""
    work: Any = None
    """Whatever the receiver needs to know."""
    samples: Sequence[int] | None = None
    """The sample indices of every task, where they are not ``range(rollouts)``."""


Receive = Callable[[Batch, list[TaskRollouts]], None]
"""Gets a batch with one record a task in the order of ``tasks``, its episodes in the order of ``sample_idx``, frames
and prompts in the order of their first use. A task none of whose episodes was to be run has no episodes."""


def roll_out_tasks(
    env_type: type[PivotEnv],
    config: EnvConfig,
    tasks: Sequence[Task],
    policy: Policy,
    rollouts: int = GROUP_SIZE,
    *,
    concurrency: int | None = None,
    only: Collection[str] | None = None,
    run_id: str = "",
    prompt: StudentPrompt | None = None,
) -> list[TaskRollouts]:
    """Roll out one batch, in a loop of its own, and return its records: one a task, as :data:`Receive` says.

    The arguments are the fields of :class:`Batch` and those of :func:`run_batches`, which also says what is raised.
    """
    collected: list[TaskRollouts] = []
    batch = Batch(env_type, config, tasks, rollouts, only=only, run_id=run_id, prompt=prompt)

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
    """Run the episodes of all batches and hand each batch to ``receive`` when its last one is over.

    Args:
        batches: made or waited for one at a time, shortly before their episodes begin.
        policy: answers all turns; it is closed at the end.
        receive: called in another thread, one call at a time; an error of it ends the run.
        concurrency: episodes in flight; by default what the policy can take, which may change while they run.
        on_episode: called in the loop after every episode.

    Raises:
        ServerGoneError, ConfigError, PluginError: no episode can go on; see the module docstring for what is kept.
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
    """A batch in work."""

    def __init__(self, batch: Batch, policy: Policy, pool: EnvPool) -> None:
        self.batch, self.pool = batch, pool
        prompt = batch.prompt or plugins.load("prompts", batch.env_type.profile.name)
        self.runs = [TaskRun(batch.env_type, batch.config, task, policy, prompt, batch.run_id) for task in batch.tasks]
        self.episodes = [
            (run, sample)
            for run in self.runs
            for sample in (range(batch.rollouts) if batch.samples is None else batch.samples)
            if batch.only is None or run.id_of(sample) in batch.only
        ]
        self.left = len(self.episodes)
        self.complete = 0

    def collected(self) -> list[TaskRollouts]:
        """Return the records, in the order of tasks and samples."""
        return [run.collected() for run in self.runs]


class _Queued(NamedTuple):
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
        self._queue: deque[_Queued] = deque()
        self._waiting: dict[EnvPool, deque[_Queued]] = {}  # of every pool, what there was no room for
        self._open: list[_OpenBatch] = []
        self._fetching: set[asyncio.Future[None]] = set()
        self._exhausted = False
        self._episodes: set[asyncio.Future[None]] = set()
        self._handing_on: set[asyncio.Future[None]] = set()
        self._writer = ThreadPoolExecutor(1, "pivot-batches")
        self._changed = asyncio.Event()
        self._error: BaseException | None = None

    async def run(self, batches: AsyncIterator[Batch]) -> None:
        """Start episodes as policy and environments can take them, until all are over and handed on."""
        while self._error is None:
            while len(self._episodes) < self._room:
                item = self._next()
                if item is None:
                    break
                item.batch.pool.lent += 1
                self._watch(asyncio.create_task(self._episode(item)), self._episodes)
            if len(self._episodes) < self._room and not self._fetching and not self._exhausted:
                self._watch(asyncio.create_task(self._fetch(batches)), self._fetching)
            if not (self._episodes or self._handing_on or self._fetching):
                return
            self._changed.clear()
            await self._changed.wait()
        raise self._error

    @property
    def _room(self) -> int:
        return max(1, self._concurrency or self._policy.episodes_in_flight)

    async def _fetch(self, batches: AsyncIterator[Batch]) -> None:
        batch = await anext(batches, None)
        if batch is None:
            self._exhausted = True
            return
        opened = _OpenBatch(batch, self._policy, self._pool_of(batch))
        self._open.append(opened)
        if not opened.episodes:
            self._hand_on(opened)
        self._queue.extend(_Queued(opened, run, sample) for run, sample in opened.episodes)

    def _pool_of(self, batch: Batch) -> EnvPool:
        for pool in self._waiting:
            if pool.env_type is batch.env_type and pool.config == batch.config:
                return pool
        pool = EnvPool(batch.env_type, batch.config)
        self._waiting[pool] = deque()
        return pool

    def _next(self) -> _Queued | None:
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

    async def _episode(self, item: _Queued) -> None:
        opened, pool = item.batch, item.batch.pool
        env = pool.take()
        sound = False
        try:
            episode = await item.run.run_episode(env, item.sample, pool.call)
            sound = episode.status is Status.COMPLETE
        finally:
            await pool.give_back(env, sound=sound)
        opened.complete += sound
        opened.left -= 1
        self._on_episode()
        if opened.left == 0:
            self._hand_on(opened)

    def _hand_on(self, opened: _OpenBatch) -> None:
        self._open.remove(opened)
        loop = asyncio.get_running_loop()
        self._watch(
            loop.run_in_executor(self._writer, self._receive, opened.batch, opened.collected()), self._handing_on
        )

    def _watch(self, work: "asyncio.Future[None]", group: "set[asyncio.Future[None]]") -> None:
        """Keep ``work`` in ``group`` until it has ended; its first error ends the run."""

        def ended(work: "asyncio.Future[None]") -> None:
            group.discard(work)
            error = None if work.cancelled() else work.exception()
            self._error = self._error or error
            self._changed.set()

        group.add(work)
        work.add_done_callback(ended)

    async def abandon(self, error: BaseException) -> None:
        """Stop all episodes; hand on what is worth keeping."""
        for task in (*self._episodes, *self._fetching):
            task.cancel()
        await asyncio.gather(*self._episodes, *self._fetching, *self._handing_on, return_exceptions=True)
        if not isinstance(error, (*ENDS_THE_RUN, asyncio.CancelledError)):
            return  # the disk or the program is the trouble
        reason = error if isinstance(error, ServerGoneError) else ServerGoneError("the run was stopped")
        for opened in self._open:
            if opened.complete:
                for run, sample in opened.episodes:
                    run.give_up(sample, reason)
                self._receive(opened.batch, opened.collected())

    async def close(self) -> None:
        """Wait for the last file and close the environments."""
        self._writer.shutdown()
        for pool in self._waiting:
            await pool.close()
