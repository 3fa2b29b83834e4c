"""Many shards in one event loop: what keeps a model busy from the first episode of a run to its last.

One shard after the other would leave the model idle at the end of each. Here the episodes of all shards form one queue;
as many as the policy can take are in flight, the next begins when one ends, and a shard is handed on when its last
episode is over. Handing on (writing files) happens in a thread beside the loop.

When the run has to stop, shards that hold finished episodes are handed on as they are, the rest of them marked as owed.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..environments.base import EnvConfig, PivotEnv, Task
from ..errors import ServerGoneError
from .base import Policy, Status, StudentPrompt, TaskRollouts
from .loop import ENDS_THE_RUN, TaskRun


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes that are handed on together: a shard, or what it still owes."""

    env_type: type[PivotEnv]
    config: EnvConfig
    """The same object for all batches of one environment: they share its instances."""
    prompt: StudentPrompt
    tasks: Sequence[Task]
    rollouts: int
    only: Collection[str] | None
    """Ids of the episodes to run, None for all."""
    work: Any
    """Whatever the receiver needs to know."""


class _OpenBatch:
    """A batch in work."""

    def __init__(self, batch: Batch, policy: Policy) -> None:
        self.batch = batch
        self.runs = [TaskRun(batch.env_type, batch.config, task, policy, batch.prompt) for task in batch.tasks]
        self.wanted = [
            (run, sample)
            for run in self.runs
            for sample in range(batch.rollouts)
            if batch.only is None or run.id_of(sample) in batch.only
        ]
        self.left = len(self.wanted)
        self.complete = 0

    def collected(self) -> list[TaskRollouts]:
        """Return the records, in the order of tasks and samples."""
        return [run.collected() for run in self.runs]


async def run_batches(
    batches: Iterable[Batch],
    policy: Policy,
    receive: Callable[[Batch, list[TaskRollouts]], None],
    *,
    on_episode: Callable[[], None] = lambda: None,
) -> None:
    """Run the episodes of all batches and hand each batch to ``receive`` when its last one is over.

    Args:
        batches: made one at a time, shortly before their episodes begin.
        policy: answers all turns; it is closed at the end.
        receive: called in another thread, one call at a time; an error of it ends the run.
        on_episode: called in the loop after every episode.

    Raises:
        ServerGoneError, ConfigError, PluginError: no episode can go on; see the module docstring for what is kept.
    """
    stream = _Stream(policy, receive, on_episode)
    try:
        await stream.run(batches)
    except BaseException as error:
        await stream.abandon(error)
        raise
    finally:
        stream.close()
        await policy.aclose()


class _Stream:
    """The state of one :func:`run_batches`."""

    def __init__(
        self,
        policy: Policy,
        receive: Callable[[Batch, list[TaskRollouts]], None],
        on_episode: Callable[[], None],
    ) -> None:
        self._policy = policy
        self._receive = receive
        self._on_episode = on_episode
        self._free: dict[tuple[type[PivotEnv], int], list[PivotEnv]] = {}
        self._open: list[_OpenBatch] = []
        self._episodes: set[asyncio.Task[None]] = set()
        self._handing_on: set[asyncio.Future[None]] = set()
        self._writer = ThreadPoolExecutor(1, "pivot-shards")
        self._changed = asyncio.Event()
        self._error: BaseException | None = None

    async def run(self, batches: Iterable[Batch]) -> None:
        """Start episodes as the policy can take them, until all are over and handed on."""
        queue = self._queue(batches)
        more = True
        while True:
            while more and len(self._episodes) < max(1, self._policy.episodes_in_flight):
                item = next(queue, None)
                if item is None:
                    more = False
                else:
                    task = asyncio.create_task(self._episode(*item))
                    self._episodes.add(task)
                    task.add_done_callback(self._over)
            if self._error is not None:
                raise self._error
            if not more and not self._episodes and not self._handing_on:
                return
            self._changed.clear()
            await self._changed.wait()

    def _queue(self, batches: Iterable[Batch]) -> Iterator[tuple[_OpenBatch, TaskRun, int]]:
        for batch in batches:
            opened = _OpenBatch(batch, self._policy)
            self._open.append(opened)
            if not opened.wanted:
                self._hand_on(opened)
            for run, sample in opened.wanted:
                yield opened, run, sample

    async def _episode(self, opened: _OpenBatch, run: TaskRun, sample: int) -> None:
        batch = opened.batch
        free = self._free.setdefault((batch.env_type, id(batch.config)), [])
        if free:
            env = free.pop()
        else:
            env = batch.env_type(batch.config)
            env.draw_frames = False
        sound = False
        try:
            episode = await run.run_episode(env, sample)
            sound = episode.status is Status.COMPLETE
        finally:
            if sound:
                free.append(env)
            else:
                env.close()
        opened.complete += sound
        opened.left -= 1
        self._on_episode()
        if opened.left == 0:
            self._hand_on(opened)

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._episodes.discard(task)
        self._note(task)

    def _note(self, ended: "asyncio.Future[None]") -> None:
        self._handing_on.discard(ended)
        if not ended.cancelled() and self._error is None:
            self._error = ended.exception()
        self._changed.set()

    def _hand_on(self, opened: _OpenBatch) -> None:
        self._open.remove(opened)
        records = opened.collected()
        future = asyncio.get_running_loop().run_in_executor(self._writer, self._receive, opened.batch, records)
        self._handing_on.add(future)
        future.add_done_callback(self._note)

    async def abandon(self, error: BaseException) -> None:
        """Stop all episodes; hand on what is worth keeping."""
        for task in self._episodes:
            task.cancel()
        await asyncio.gather(*self._episodes, *self._handing_on, return_exceptions=True)
        if not isinstance(error, (*ENDS_THE_RUN, asyncio.CancelledError)):
            return  # the disk or the program is the trouble
        reason = error if isinstance(error, ServerGoneError) else ServerGoneError("the run was stopped")
        for opened in self._open:
            if opened.complete:
                for run, sample in opened.wanted:
                    run.give_up(sample, reason)
                self._receive(opened.batch, opened.collected())

    def close(self) -> None:
        """Close the environments and wait for the last file."""
        self._writer.shutdown()
        for environments in self._free.values():
            for env in environments:
                env.close()
