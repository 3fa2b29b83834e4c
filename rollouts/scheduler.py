"""The scheduler of rollouts that wait: one event loop with one queue for the episodes of all batches.

As many episodes as the policy accepts run concurrently, each in its own environment. The next episode begins when one
ends. When the last episode of a batch ends, a separate thread delivers the batch to its receiver. If an environment
allows only a few instances, its episodes wait and episodes of other environments go first. An environment that blocks
(``PivotEnv.blocks``) is called in a thread, so that the event loop continues; it has one caller at a time.

When the run has to stop, batches with at least one finished episode are delivered as they are; their other episodes are
marked as pending.
"""

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from ..core.errors import ServerGoneError
from ..environments.base import EnvConfig, PivotEnv
from .base import Batch, Policy, Status, TaskRollouts
from .episode import ENDS_THE_RUN, TaskRun, close_env, new_env, open_batch

Result = TypeVar("Result")

Receive = Callable[[Batch, list[TaskRollouts]], None]
"""Receives a batch with one record per task in the order of ``tasks``: episodes in the order of ``sample_idx``, frames
and prompts in the order of their first use. If ``only`` names no episode of a task, its record has no episodes."""


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

    def __init__(self, batch: Batch, policy: Policy, pool: "EnvPool") -> None:
        self.batch, self.pool = batch, pool
        self.runs, self.episodes = open_batch(batch, policy)
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

    def _pool_of(self, batch: Batch) -> "EnvPool":
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
        self._deliveries.start(loop.run_in_executor(self._writer, self._receive, opened.batch, opened.collected()))

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


MOST_THREADS = 64
"""Most concurrent calls of blocking environments per pool. Their threads only wait, which is cheap."""


class EnvPool:
    """Pool of environments of one type and settings, with a maximum size."""

    def __init__(self, env_type: type[PivotEnv], config: EnvConfig) -> None:
        """Start empty."""
        self.env_type, self.config = env_type, config
        self.lent = 0
        """Number of environments reserved or in use; the caller that starts an episode increments it."""
        self._free: list[PivotEnv] = []
        self._threads = ThreadPoolExecutor(min(MOST_THREADS, config.most_instances or MOST_THREADS), "pivot-env")

    @property
    def has_room(self) -> bool:
        """Whether another episode may begin."""
        return self.config.most_instances is None or self.lent < self.config.most_instances

    def take(self) -> PivotEnv:
        """Return a free environment, or a new one."""
        return self._free.pop() if self._free else new_env(self.env_type, self.config)

    async def give_back(self, env: PivotEnv, *, sound: bool) -> None:
        """Return an environment to the pool, or close it if it broke."""
        if not sound:
            await self.call(env, close_env, env)
        else:
            self._free.append(env)
        self.lent -= 1

    async def call(self, env: PivotEnv, function: Callable[..., Result], /, *arguments: Any) -> Result:
        """Call a function that uses ``env``, in a thread if ``env`` blocks; wait until a cancelled call has ended."""
        if not env.blocks:
            return function(*arguments)
        running = self._threads.submit(function, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if not running.cancel():
                await asyncio.gather(asyncio.wrap_future(running), return_exceptions=True)
            raise

    async def close(self) -> None:
        """Close the free environments."""
        while self._free:
            env = self._free.pop()
            await self.call(env, close_env, env)
        self._threads.shutdown()


class WorkGroup:
    """Running tasks of one kind, such as episodes or requests."""

    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor
        self.running: set[asyncio.Future[Any]] = set()

    def __len__(self) -> int:
        """Return how much work is in progress."""
        return len(self.running)

    def start(self, work: "Coroutine[Any, Any, None] | asyncio.Future[Any]") -> None:
        """Begin ``work``; its first error ends the run of the supervisor."""
        future = asyncio.ensure_future(work)
        self.running.add(future)
        future.add_done_callback(self._end)

    def _end(self, future: "asyncio.Future[Any]") -> None:
        self.running.discard(future)
        self._supervisor.notice(None if future.cancelled() else future.exception())


class Supervisor:
    """The running tasks of one scheduler. Create it within the event loop."""

    def __init__(self) -> None:
        self._groups: list[WorkGroup] = []
        self._changed = asyncio.Event()
        self.error: BaseException | None = None
        """The first error; no work begins after it."""

    def group(self) -> WorkGroup:
        """Return a new, empty group of work."""
        self._groups.append(WorkGroup(self))
        return self._groups[-1]

    def notice(self, error: BaseException | None = None) -> None:
        """Wake the scheduler; ``error`` ends the run unless an earlier one did."""
        self.error = self.error or error
        self._changed.set()

    async def run(self, begin: Callable[[], None]) -> None:
        """Call ``begin``, which starts tasks, after every finished task until none is running.

        Raises:
            BaseException: the first error of any work; other work is still in progress then.
        """
        while self.error is None:
            begin()
            if not any(self._groups):
                return
            self._changed.clear()
            await self._changed.wait()
        raise self.error

    async def stop(self, *cancelled: WorkGroup) -> None:
        """Cancel the work of some groups and wait until all work has ended, whatever its outcome."""
        for group in cancelled:
            for work in group.running:
                work.cancel()
        await asyncio.gather(*(work for group in self._groups for work in group.running), return_exceptions=True)


def run_without_gc_pauses(work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work`` in an event loop of its own, like :func:`asyncio.run`, without pauses of the garbage collector.

    A full collection visits every object that was ever imported, a million of them: up to half a second in which no
    request is sent. Objects that exist when the loop begins are therefore left out of collections until it ends.
    """
    gc.freeze()
    try:
        return asyncio.run(work)
    finally:
        gc.unfreeze()
