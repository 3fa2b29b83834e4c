"""The worker's side of spread rollouts: an event loop that plays shards and requests every reply from the driver."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any

from ...datasets.store.config import Shard
from ...datasets.store.stages.rollout import RolloutJob, store_rollouts
from ...datasets.store.store import Store
from ...environments.turns import Reply, Turn
from ...models.base import image_ids
from ...rollouts.base import Policy, TaskRollouts
from ...rollouts.loop import Batch, run_batches
from ...rollouts.supervisor import run_without_gc_pauses
from .connection import (
    AssignShard,
    CancelRequest,
    Connection,
    Endpoint,
    EpisodeOver,
    FromScheduler,
    ShardStored,
    Stop,
    TurnRequest,
    TurnResult,
    WorkRequest,
    call,
)
from .shards import batch_of


def play(store: Store, endpoint: Endpoint) -> None:
    """Play the shards that the driver at ``endpoint`` assigns, until it has none left.

    Raises:
        ConnectionLostError: the driver cannot be reached, or the connection broke; other workers then play the
            shards that are not stored.
        ServerGoneError, ConfigError, PluginError, CacheError: errors of the policy in the driver; finished shards are
            stored.
        StoreError: a shard cannot be written or read.
    """
    run_without_gc_pauses(_play(store, endpoint))


async def _play(store: Store, endpoint: Endpoint) -> None:
    async with call(endpoint) as connection:
        remote = _RemoteLoop(store, connection)
        playing = asyncio.create_task(
            run_batches(
                remote.batches(), _RemotePolicy(store.run.policy(), remote), remote.receive, on_episode=remote.ended
            )
        )
        listening = asyncio.create_task(remote.listen(playing))
        try:
            await playing
        except asyncio.CancelledError:
            if not remote.stopped:
                raise
        finally:
            if not listening.done():
                listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        connection.raise_if_lost()


class _RemoteLoop:
    """The worker's end of the connection to the driver."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store, self._connection = store, connection
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._requests: dict[int, asyncio.Future[TurnResult]] = {}
        self._assigned: asyncio.Future[RolloutJob | None] = self._loop.create_future()
        self._began: dict[Shard, float] = {}
        self.share = 1
        """Most concurrent episodes in this worker."""
        self.stopped = False

    async def listen(self, playing: "asyncio.Task[None]") -> None:
        """Handle messages of the driver; cancel ``playing`` when the run ends or the connection is lost."""
        try:
            while True:
                self._handle(await self._connection.receive(), playing)
        except Exception:  # noqa: BLE001 - a message that cannot be unpickled, too, ends the conversation
            self._connection.lost = True
            self.stopped = True
            playing.cancel()
            for answer in self._requests.values():
                answer.cancel()

    def _handle(self, message: FromScheduler, playing: "asyncio.Task[None]") -> None:
        match message:
            case TurnResult():
                self.share = message.share
                answer = self._requests.pop(message.number)
                if not answer.done():
                    answer.set_result(message)
            case AssignShard():
                self.share = message.share
                if not self._assigned.done():
                    self._assigned.set_result(message.job)
            case Stop():
                self.stopped = True
                playing.cancel()

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield the shards as the driver assigns them."""
        while True:
            self._assigned = self._loop.create_future()
            self._connection.send(WorkRequest())
            job = await self._assigned
            if job is None:
                return
            self._began[job.shard] = perf_counter()
            yield batch_of(self._store.run, job)

    async def reply(self, turn: Turn) -> Reply:
        """Return the driver's reply to a turn."""
        self._connection.raise_if_lost()
        number = next(self._numbers)
        answer = self._requests[number] = self._loop.create_future()
        shown = {name: turn.images[name] for name in image_ids(turn.prompt.messages)}
        self._connection.send(TurnRequest(number, replace(turn, images=shown, env=None)))
        try:
            answered = await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._connection.send(CancelRequest(number))
            if not self._connection.lost:
                turn.sent.add((await answer).sent)  # requests sent before the cancellation count
            raise
        turn.sent.add(answered.sent)
        if answered.error is not None:
            raise answered.error
        assert answered.reply is not None
        return answered.reply

    def ended(self) -> None:
        """Report an episode that is over."""
        self._connection.send(EpisodeOver())

    def receive(self, batch: Batch, rollouts: list[TaskRollouts]) -> None:
        """Store a shard, from any thread; refused without a connection, because another worker then plays it."""
        self._connection.raise_if_lost()
        job: RolloutJob = batch.work
        stored = store_rollouts(self._store, job, rollouts)
        result = replace(stored, seconds=perf_counter() - self._began.pop(job.shard))
        self._loop.call_soon_threadsafe(self._connection.send, ShardStored(result))


class _RemotePolicy(Policy):
    """The policy of a run in a worker: its settings are local, its replies come from the driver."""

    def __init__(self, policy: Policy, remote: _RemoteLoop) -> None:
        super().__init__(policy.settings)
        self.name, self.episode_seconds = policy.name, policy.episode_seconds
        self._policy, self._remote = policy, remote

    @property
    def config(self) -> dict[str, Any]:
        return self._policy.config

    def config_for(self, env: str) -> dict[str, Any]:
        return self._policy.config_for(env)

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._remote.share

    async def reply(self, turn: Turn) -> Reply:
        return await self._remote.reply(turn)
