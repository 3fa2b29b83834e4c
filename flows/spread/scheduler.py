"""The driver's side of spread rollouts: it assigns shards to workers and answers their turns.

All requests of a run pass through the one policy in the driver, so limit, circuit breaker, cache, connections and keys
are those of a run in one process. If a worker's connection breaks, only its shards are assigned again.
"""

import asyncio
import logging
import math
import secrets

from ...core.errors import PolicyError
from ...datasets.store.config import Shard
from ...datasets.store.stages.rollout import RolloutJob
from ...environments.turns import Reply, Turn
from ...rollouts.episode import ENDS_THE_RUN
from ...rollouts.supervisor import run_without_gc_pauses
from ..engines.base import WorkerPool
from ..engines.cluster import portable
from ..engines.local import worker_deaths
from .connection import (
    PATIENCE_SECONDS,
    AssignShard,
    CancelRequest,
    Connection,
    ConnectionLostError,
    Endpoint,
    EpisodeOver,
    FromWorker,
    ShardStored,
    Stop,
    TurnRequest,
    TurnResult,
    WorkRequest,
    accept,
    listening_socket,
)
from .remote import play
from .shards import PendingShards, episodes_of

PREFETCH_PER_WORKER = 2
"""Episodes assigned to a worker, begun or not, as a multiple of its share of the concurrent ones. At 2 no worker waits
for its next shard, and one with a slow simulator, or with few instances of it, does not hoard episodes."""

_log = logging.getLogger(__name__)


def worker_loops(pool: WorkerPool, shards: PendingShards) -> int:
    """Return how many workers of a pool play; 0 if none can be spared.

    One worker is reserved for labelling, which certifies shards as they are stored.
    """
    return max(0, min(pool.workers - 1, len(shards), shards.store.run.policy().episodes_in_flight))


def roll_out_spread(shards: PendingShards, pool: WorkerPool, loops: int) -> None:
    """Play the shards on ``loops`` workers; shards of workers whose connection broke stay in ``shards``.

    Raises:
        ServerGoneError: the model no longer answers; finished shards are stored.
        StoreError: a shard cannot be written or read, or a worker process died.
        ConfigError, PluginError, CacheError: the policy cannot work with these settings.
    """
    run_without_gc_pauses(_Scheduler(shards, pool).run(loops))


class _Worker:
    """A connected worker."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.jobs: dict[Shard, RolloutJob] = {}
        self.unfinished = 0
        """Episodes of its jobs that are not over."""
        self.wants_work = False
        self.requests: dict[int, asyncio.Task[Reply]] = {}


class _Scheduler:
    """The state of one :func:`roll_out_spread`."""

    def __init__(self, shards: PendingShards, pool: WorkerPool) -> None:
        self._shards, self._pool = shards, pool
        self._run, self._policy = shards.store.run, shards.store.run.policy()
        self._workers: list[_Worker] = []
        self._playing: list[asyncio.Task[None]] = []
        self._listening: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def run(self, loops: int) -> None:
        """Assign shards until every one is stored, or no worker can continue."""
        port = listening_socket(self._pool.hosts)
        self._endpoint = Endpoint(self._pool.hosts, port.getsockname()[1], secrets.token_bytes(32))
        server = await asyncio.start_server(self._serve_worker, sock=port)
        self._playing = [asyncio.create_task(self._play()) for _ in range(loops)]
        try:
            await asyncio.shield(asyncio.gather(*self._playing))
        except BaseException as error:  # noqa: BLE001 - raised below, after finished shards are stored
            self._end(error)
            await asyncio.gather(*self._playing, return_exceptions=True)
        finally:
            if self._listening:  # messages that workers sent just before they ended
                await asyncio.wait(self._listening, timeout=PATIENCE_SECONDS)
            server.close()
            for worker in list(self._workers):
                await worker.connection.close()
            await self._policy.aclose()
        if self._error is not None:
            raise self._error

    async def _play(self) -> None:
        """Run the loop of one worker until no shard is left."""
        with worker_deaths():
            try:
                await asyncio.wrap_future(self._pool.beside(play, self._shards.store, self._endpoint))
            except ConnectionLostError as error:
                _log.warning("%s; other workers play its shards", error)

    def _end(self, error: BaseException) -> None:
        """End the run: assign nothing more and cancel every pending reply."""
        if self._error is not None:
            return
        self._error = error
        for worker in self._workers:
            if not isinstance(error, ENDS_THE_RUN):  # such an error is the answer to every pending turn instead
                worker.connection.send(Stop())
            for asking in worker.requests.values():
                asking.cancel()
        self._assign()

    # Messages from workers

    async def _serve_worker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: asyncio.Task[None] = asyncio.current_task()  # pyright: ignore[reportAssignmentType]
        connection = await accept(self._endpoint, reader, writer)
        if connection is None:
            return
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        worker = _Worker(connection)
        self._workers.append(worker)
        if self._error is not None:
            connection.send(Stop())
        try:
            while True:
                self._handle(worker, await connection.receive())
        except ConnectionLostError:
            pass
        except Exception as error:  # noqa: BLE001 - for example a reporter's error
            self._end(error)
        finally:
            self._forget(worker)
            await connection.close()

    def _handle(self, worker: _Worker, message: FromWorker) -> None:
        match message:
            case TurnRequest():
                self._answer(worker, message)
                return
            case CancelRequest():
                if message.number in worker.requests:
                    worker.requests[message.number].cancel()
                return
            case WorkRequest():
                worker.wants_work = True
            case EpisodeOver():
                worker.unfinished -= 1
                self._shards.ended()
            case ShardStored():
                del worker.jobs[message.result.shard]
                self._shards.stored(message.result)
        self._assign()

    def _forget(self, worker: _Worker) -> None:
        """Drop a disconnected worker and assign its shards again."""
        for asking in worker.requests.values():
            asking.cancel()
        self._workers.remove(worker)
        if worker.jobs:
            begun = sum(episodes_of(self._run, job) for job in worker.jobs.values())
            self._shards.give_back(worker.jobs, max(0, begun - worker.unfinished))
        self._assign()

    # Messages to workers

    def _assign(self) -> None:
        """Assign shards to the workers that requested one; dismiss them when all are stored or the run ends."""
        for worker in self._workers:
            if not worker.wants_work:
                continue
            job: RolloutJob | None = None
            if self._error is None:
                if worker.unfinished >= self._prefetch():
                    continue
                job = self._next()
                if job is not None:
                    worker.jobs[job.shard] = job
                    worker.unfinished += episodes_of(self._run, job)
                elif any(other.jobs for other in self._workers):
                    continue  # if another worker disconnects, this one gets its shards
            worker.wants_work = False
            worker.connection.send(AssignShard(job, self._share()))

    def _next(self) -> RolloutJob | None:
        try:
            return self._shards.next()
        except Exception as error:  # noqa: BLE001 - ends the whole run
            self._end(error)
            return None

    def _share(self) -> int:
        """Return the most concurrent episodes per busy worker."""
        return math.ceil(self._policy.episodes_in_flight / max(1, sum(bool(worker.jobs) for worker in self._workers)))

    def _prefetch(self) -> int:
        """Return the most assigned episodes per worker, counting workers that have yet to connect."""
        playing = sum(not each.done() for each in self._playing)
        return PREFETCH_PER_WORKER * math.ceil(self._policy.episodes_in_flight / max(1, playing))

    def _answer(self, worker: _Worker, request: TurnRequest) -> None:
        """Ask the policy for a reply and send the worker the reply or the error."""

        def send_result(asking: "asyncio.Task[Reply]") -> None:
            del worker.requests[request.number]
            reply: Reply | None = None
            error: BaseException | None = None
            if asking.cancelled():
                ends = isinstance(self._error, ENDS_THE_RUN)
                error = self._error if ends else PolicyError("the turn was cancelled before it was answered")
            elif (error := asking.exception()) is None:
                reply = asking.result()
            elif isinstance(error, ENDS_THE_RUN):
                self._end(error)
            sendable = portable(error) if isinstance(error, Exception) else None
            sent, share = request.turn.sent, self._share()
            try:
                worker.connection.send(TurnResult(request.number, reply, sendable, sent, share))
            except Exception as unsent:  # noqa: BLE001 - a plugin's reply may hold objects that cannot be pickled
                failure = PolicyError(f"the reply cannot be sent to another process ({unsent})")
                worker.connection.send(TurnResult(request.number, None, failure, sent, share))

        asking = worker.requests[request.number] = asyncio.create_task(self._reply(request.turn))
        asking.add_done_callback(send_result)
        if self._error is not None:
            asking.cancel()

    async def _reply(self, turn: Turn) -> Reply:
        return await self._policy.reply(turn)
