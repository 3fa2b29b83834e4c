"""Where shards are played: an event loop in a worker, whose turns are answered by the process that asks the model."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any

from ...datasets.config import Shard
from ...datasets.run import Run
from ...models.base import image_ids
from ...rollouts.base import Policy, Reply, TaskRollouts, Turn
from ...rollouts.loop import Batch, run_batches
from ...rollouts.supervisor import run_without_gc_pauses
from ...storage import Address
from ..stages import RolloutJob, store_rollouts
from .line import Answered, Ask, Dealt, Ended, Line, Place, Stop, Stored, Told, Want, Withdraw, call
from .shards import batch_of


def play(root: Address, run: Run, place: Place) -> None:
    """Play the shards that the process at ``place`` deals, until it has none left.

    Raises:
        NoLineError: it cannot be reached, or not any more; shards that are not whole are then left to others.
        ServerGoneError, ConfigError, PluginError, CacheError: as the policy says there; what is finished is stored.
        StoreError: a shard cannot be written or read.
    """
    run_without_gc_pauses(_play(root, run, place))


async def _play(root: Address, run: Run, place: Place) -> None:
    async with call(place) as line:
        away = _Away(root, run, line)
        playing = asyncio.create_task(
            run_batches(away.batches(), _PolicyAfar(run.policy(), away), away.receive, on_episode=away.ended)
        )
        listening = asyncio.create_task(away.listen(playing))
        try:
            await playing
        except asyncio.CancelledError:
            if not away.stopped:
                raise
        finally:
            if not listening.done():
                listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        line.refuse_lost()


class _Away:
    """The worker's end of the line."""

    def __init__(self, root: Address, run: Run, line: Line) -> None:
        self._root, self._run, self._line = root, run, line
        self._loop = asyncio.get_running_loop()
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self._dealt: asyncio.Future[RolloutJob | None] = self._loop.create_future()
        self._began: dict[Shard, float] = {}
        self.share = 1
        """Episodes that may be in flight here."""
        self.stopped = False

    async def listen(self, playing: "asyncio.Task[None]") -> None:
        """Take in what is told; end ``playing`` when the run does, or when the line is lost."""
        try:
            while True:
                self._hear(await self._line.receive(), playing)
        except Exception:  # noqa: BLE001 - also of a message that this process cannot read: nothing more is heard
            self._line.lost = True
            self.stopped = True
            playing.cancel()
            for answer in self._asked.values():
                answer.cancel()

    def _hear(self, told: Told, playing: "asyncio.Task[None]") -> None:
        match told:
            case Answered():
                self.share = told.share
                answer = self._asked.pop(told.number)
                if not answer.done():
                    answer.set_result(told)
            case Dealt():
                self.share = told.share
                if not self._dealt.done():
                    self._dealt.set_result(told.job)
            case Stop():
                self.stopped = True
                playing.cancel()

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield one shard after the other, as they are dealt."""
        while True:
            self._dealt = self._loop.create_future()
            self._line.send(Want())
            job = await self._dealt
            if job is None:
                return
            self._began[job.shard] = perf_counter()
            yield batch_of(self._run, job)

    async def reply(self, turn: Turn) -> Reply:
        """Have a turn answered."""
        self._line.refuse_lost()
        number = next(self._numbers)
        answer = self._asked[number] = self._loop.create_future()
        shown = {name: turn.images[name] for name in image_ids(turn.prompt.messages)}
        self._line.send(Ask(number, replace(turn, images=shown, env=None)))
        try:
            answered = await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._line.send(Withdraw(number))
            if not self._line.lost:
                turn.sent.tries += (await answer).tries  # what was sent by then counts
            raise
        turn.sent.tries += answered.tries
        if answered.error is not None:
            raise answered.error
        assert answered.reply is not None
        return answered.reply

    def ended(self) -> None:
        """Tell of an episode that is over."""
        self._line.send(Ended())

    def receive(self, batch: Batch, rollouts: list[TaskRollouts]) -> None:
        """Store a shard, in whatever thread; not without a line, for somebody else then plays it."""
        self._line.refuse_lost()
        job: RolloutJob = batch.work
        stored = store_rollouts(self._root, self._run, job, rollouts)
        result = replace(stored, seconds=perf_counter() - self._began.pop(job.shard))
        self._loop.call_soon_threadsafe(self._line.send, Stored(result))


class _PolicyAfar(Policy):
    """The policy of a run as a worker has it: its settings are here, its replies come over the line."""

    def __init__(self, policy: Policy, away: _Away) -> None:
        super().__init__(policy.settings)
        self.name, self.episode_seconds = policy.name, policy.episode_seconds
        self._policy, self._away = policy, away

    @property
    def config(self) -> dict[str, Any]:
        return self._policy.config

    def config_for(self, env: str) -> dict[str, Any]:
        return self._policy.config_for(env)

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._away.share

    async def reply(self, turn: Turn) -> Reply:
        return await self._away.reply(turn)
