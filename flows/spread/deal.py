"""Where the model is asked: deals shards to the workers that play, and answers their turns.

All requests of a run pass through the one policy here, so limit, breaker, cache, connections and keys are those of a
run in one process. A worker whose line breaks costs its shards only: they are dealt again.
"""

import asyncio
import logging
import math
import secrets

from ...datasets.config import Shard
from ...datasets.run import Run
from ...errors import PolicyError
from ...rollouts.base import Reply, Turn
from ...rollouts.episode import ENDS_THE_RUN
from ...rollouts.supervisor import run_without_gc_pauses
from ..engines.base import WorkerPool
from ..engines.cluster import portable
from ..engines.local import worker_deaths
from ..stages import RolloutJob
from .away import play
from .line import (
    PATIENCE_SECONDS,
    Answered,
    Ask,
    Dealt,
    Ended,
    Line,
    NoLineError,
    Place,
    Said,
    Stop,
    Stored,
    Want,
    Withdraw,
    introduced,
    port_for,
)
from .shards import ShardsToPlay, episodes_of

AT_HAND = 2
"""Times its share of the episodes in flight that a worker has at hand, begun or not: none waits for the next shard, and
one whose simulator is slow, or allows a few instances only, does not hoard what others could play."""

_log = logging.getLogger(__name__)


def loops_on(pool: WorkerPool, run: Run, shards: ShardsToPlay) -> int:
    """Return how many workers of a pool are to play; 0 where there are none to spare.

    One is left for what is done beside: shards are certified as they come in.
    """
    return max(0, min(pool.workers - 1, len(shards), run.policy().episodes_in_flight))


def roll_out_spread(shards: ShardsToPlay, pool: WorkerPool, loops: int) -> None:
    """Play the shards on ``loops`` workers; what they leave because their lines break stays in ``shards``.

    Raises:
        ServerGoneError: the model answers nobody any more; what is finished is stored.
        StoreError: a shard cannot be written or read, or a worker died.
        ConfigError, PluginError, CacheError: the policy cannot work with these settings.
    """
    run_without_gc_pauses(_Dealer(shards, pool).run(loops))


class _Player:
    """A worker that has called."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.jobs: dict[Shard, RolloutJob] = {}
        self.left = 0
        """Episodes of its jobs that are not over."""
        self.wants = False
        self.asked: dict[int, asyncio.Task[Reply]] = {}


class _Dealer:
    """The state of one :func:`roll_out_spread`."""

    def __init__(self, shards: ShardsToPlay, pool: WorkerPool) -> None:
        self._shards, self._pool = shards, pool
        self._run, self._policy = shards.run, shards.run.policy()
        self._players: list[_Player] = []
        self._playing: list[asyncio.Task[None]] = []
        self._hearing: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def run(self, loops: int) -> None:
        """Let workers play until every shard is stored, or nobody can go on."""
        port = port_for(self._pool.hosts)
        self._place = Place(self._pool.hosts, port.getsockname()[1], secrets.token_bytes(32))
        server = await asyncio.start_server(self._called, sock=port)
        self._playing = [asyncio.create_task(self._play()) for _ in range(loops)]
        try:
            await asyncio.shield(asyncio.gather(*self._playing))
        except BaseException as error:  # noqa: BLE001 - raised below, when what is finished is stored
            self._end(error)
            await asyncio.gather(*self._playing, return_exceptions=True)
        finally:
            if self._hearing:  # the last words of workers that have ended
                await asyncio.wait(self._hearing, timeout=PATIENCE_SECONDS)
            server.close()
            for player in list(self._players):
                await player.line.close()
            await self._policy.aclose()
        if self._error is not None:
            raise self._error

    async def _play(self) -> None:
        """Have a worker play, to the end of all shards."""
        with worker_deaths():
            try:
                await asyncio.wrap_future(self._pool.beside(play, self._shards.root, self._run, self._place))
            except NoLineError as error:
                _log.warning("%s; others go on with its shards", error)

    def _end(self, error: BaseException) -> None:
        """End the run: nothing more is dealt, and nobody gets a reply any more."""
        if self._error is not None:
            return
        self._error = error
        for player in self._players:
            if not isinstance(error, ENDS_THE_RUN):  # which is what the turns in flight are answered with
                player.line.send(Stop())
            for asking in player.asked.values():
                asking.cancel()
        self._deal()

    # What workers say

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
        line = await introduced(self._place, reader, writer)
        if line is None:
            return
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)
        player = _Player(line)
        self._players.append(player)
        if self._error is not None:
            line.send(Stop())
        try:
            while True:
                self._hear(player, await line.receive())
        except NoLineError:
            pass
        except Exception as error:  # noqa: BLE001 - such as a reporter's
            self._end(error)
        finally:
            self._gone(player)
            await line.close()

    def _hear(self, player: _Player, said: Said) -> None:
        match said:
            case Ask():
                self._ask(player, said)
                return
            case Withdraw():
                if said.number in player.asked:
                    player.asked[said.number].cancel()
                return
            case Want():
                player.wants = True
            case Ended():
                player.left -= 1
                self._shards.ended()
            case Stored():
                del player.jobs[said.result.shard]
                self._shards.stored(said.result)
        self._deal()

    def _gone(self, player: _Player) -> None:
        """Deal again what a worker leaves, if it leaves anything."""
        for asking in player.asked.values():
            asking.cancel()
        self._players.remove(player)
        if player.jobs:
            begun = sum(episodes_of(self._run, job) for job in player.jobs.values())
            self._shards.give_back(player.jobs, max(0, begun - player.left))
        self._deal()

    # What they are told

    def _deal(self) -> None:
        """Give shards to those who want one; when all are stored, or the run is to end, let them go."""
        for player in self._players:
            if not player.wants:
                continue
            job: RolloutJob | None = None
            if self._error is None:
                if player.left >= self._at_hand():
                    continue
                job = self._next()
                if job is not None:
                    player.jobs[job.shard] = job
                    player.left += episodes_of(self._run, job)
                elif any(other.jobs for other in self._players):
                    continue  # what another one leaves may still be for this one
            player.wants = False
            player.line.send(Dealt(job, self._share()))

    def _next(self) -> RolloutJob | None:
        try:
            return self._shards.next()
        except Exception as error:  # noqa: BLE001 - it ends the run, whoever the shard was for
            self._end(error)
            return None

    def _share(self) -> int:
        """Return how many episodes each of those who play may have in flight."""
        return math.ceil(self._policy.episodes_in_flight / max(1, sum(bool(player.jobs) for player in self._players)))

    def _at_hand(self) -> int:
        """Return how many episodes one of those who play may have at hand; who has yet to call gets as many."""
        playing = sum(not each.done() for each in self._playing)
        return AT_HAND * math.ceil(self._policy.episodes_in_flight / max(1, playing))

    def _ask(self, player: _Player, ask: Ask) -> None:
        """Have a turn answered; whatever becomes of that is told."""

        def told(asking: "asyncio.Task[Reply]") -> None:
            del player.asked[ask.number]
            reply: Reply | None = None
            error: BaseException | None = None
            if asking.cancelled():
                ends = isinstance(self._error, ENDS_THE_RUN)
                error = self._error if ends else PolicyError("nobody waits for this reply any more")
            elif (error := asking.exception()) is None:
                reply = asking.result()
            elif isinstance(error, ENDS_THE_RUN):
                self._end(error)
            shown = portable(error) if isinstance(error, Exception) else None
            tries, share = ask.turn.sent.tries, self._share()
            try:
                player.line.send(Answered(ask.number, reply, shown, tries, share))
            except Exception as unsent:  # noqa: BLE001 - a plugin's reply may hold anything; its worker waits for it
                kept = PolicyError(f"the reply cannot travel between processes ({unsent})")
                player.line.send(Answered(ask.number, None, kept, tries, share))

        asking = player.asked[ask.number] = asyncio.create_task(self._reply(ask.turn))
        asking.add_done_callback(told)
        if self._error is not None:
            asking.cancel()

    async def _reply(self, turn: Turn) -> Reply:
        return await self._policy.reply(turn)
