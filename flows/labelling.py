"""The label stage of a writer that waits for a model: all shards in one event loop of this process.

As with rollouts, one loop keeps all slots of the model full, and ``max_concurrency`` holds for the whole run. Solvers,
pictures, provers and filters run in the workers: a shard is certified shortly before the loop has room for its
requests, and judged and written after its last answer. Receipts are the same as in a pool.

When the run has to stop, shards with answers are written, and their other labels are ``unanswered``: the next run
requests only these.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

from ..core.errors import ServerGoneError
from ..core.progress import Reporter
from ..datasets.store.config import Shard
from ..datasets.store.inputs import LABEL, episodes_of
from ..datasets.store.stages.base import ShardResult, report_stored
from ..datasets.store.stages.label import LabelJob, label_job, store_labels
from ..datasets.store.store import Store
from ..datasets.verify.replay import EarlierGuidance
from ..labeling.base import UNANSWERED, ConcurrentWriter, Guidance, Objection, PreparedRequest
from ..rollouts.episode import ENDS_THE_RUN
from ..rollouts.supervisor import Supervisor, run_without_gc_pauses
from .engines.local import WorkerPool, worker_deaths

Result = TypeVar("Result")

PREFETCH_BYTES = 256_000_000
"""Largest total size of pictures that wait for a request; collages of renders are a megabyte each."""


class Prefetch:
    """Certifies shards in workers while others are still rolled out, so that the model never waits for them."""

    def __init__(self, store: Store, pool: WorkerPool) -> None:
        """Certify on ``pool``, if the writer requests guidance of all shards in one loop."""
        self._store, self._pool = store, pool
        self._is_useful = isinstance(store.run.writer(), ConcurrentWriter)
        self._stored: deque[Shard] = deque()
        self.jobs: dict[Shard, Future[LabelJob | ShardResult]] = {}

    def begin(self, shard: Shard) -> None:
        """Certify a shard with stored rollouts when a worker is free and there is room for its pictures."""
        if not self._is_useful:
            return
        self._stored.append(shard)
        free = self._pool.workers - sum(not job.done() for job in self.jobs.values())
        while self._stored and free > 0 and self._bytes() < PREFETCH_BYTES:
            first = self._stored.popleft()
            self.jobs[first] = self._pool.beside(label_job, self._store, first)
            free -= 1

    def _bytes(self) -> int:
        """Return the total size of the pictures that wait."""
        done = [job.result() for job in self.jobs.values() if job.done() and job.exception() is None]
        jobs = [job for job in done if isinstance(job, LabelJob)]
        return sum(each.picture.byte_size for job in jobs for each in job.prepared.values())


def label_served(
    store: Store,
    pool: WorkerPool,
    reporter: Reporter,
    prefetch: Prefetch | None = None,
    earlier: EarlierGuidance | None = None,
) -> list[ShardResult]:
    """Label all shards, in any order, and report every shard.

    Guidance of an earlier label version is kept if its request has not changed.

    Raises:
        ServerGoneError: the model no longer answers; finished answers are stored, and the next run resumes.
        StoreError: rollouts cannot be read, labels not written, or a worker died.
        ConfigError, PluginError: the model cannot be used with these settings.
    """
    shards = store.config.shards()
    episodes = {shard: episodes_of(store, shard) for shard in shards}
    reporter.start(LABEL, sum(episodes.values()))
    results: list[ShardResult] = []

    def receive(result: ShardResult) -> None:
        results.append(result)
        report_stored(reporter, result)
        reporter.advance(LABEL, episodes[result.shard])

    begun = prefetch.jobs if prefetch else {}
    shards.sort(key=lambda shard: shard not in begun)  # certified shards first
    run_without_gc_pauses(_Labelling(store, pool, receive, begun, earlier).run(shards))
    reporter.finish(LABEL)
    return results


class _Labelling:
    """The state of one :func:`label_served`."""

    def __init__(
        self,
        store: Store,
        pool: WorkerPool,
        receive: Callable[[ShardResult], None],
        begun: dict[Shard, "Future[LabelJob | ShardResult]"],
        earlier: EarlierGuidance | None,
    ) -> None:
        self._earlier = earlier
        self._store, self._pool, self._receive, self._begun = store, pool, receive, begun
        self._writer: ConcurrentWriter = store.run.writer()  # pyright: ignore[reportAttributeAccessIssue]
        self._waiting: deque[tuple[LabelJob, int, PreparedRequest]] = deque()
        self._waiting_bytes = 0
        self._left: dict[Shard, int] = {}  # unanswered requests of an open job
        self._open: dict[Shard, LabelJob] = {}
        self._since: dict[Shard, float] = {}  # time of its first request
        self._supervisor = Supervisor()
        self._asking, self._certifying = self._supervisor.group(), self._supervisor.group()
        self._storing = self._supervisor.group()

    async def run(self, shards: list[Shard]) -> None:
        """Label the shards as fast as the model answers, until all are written."""
        try:
            queue = deque(shards)
            await self._supervisor.run(lambda: self._begin(queue))
        except BaseException as error:
            await self._abandon(error)
            raise
        finally:
            await self._writer.aclose()

    def _begin(self, shards: deque[Shard]) -> None:
        while shards and len(self._certifying) < self._pool.workers and self._wants_more:
            self._certifying.start(self._certify(shards.popleft()))
        while self._waiting and len(self._asking) < self._writer.in_flight:
            self._asking.start(self._ask(*self._next()))

    @property
    def _wants_more(self) -> bool:
        """Whether another shard should be certified, so that no answer waits for the next request."""
        return len(self._waiting) <= self._writer.in_flight and self._waiting_bytes < PREFETCH_BYTES

    def _next(self) -> tuple[LabelJob, int, PreparedRequest]:
        item = self._waiting.popleft()
        self._waiting_bytes -= item[2].picture.byte_size
        return item

    async def _certify(self, shard: Shard) -> None:
        # Removed, so that pictures do not outlive their requests.
        begun = self._begun.pop(shard, None) or self._pool.beside(label_job, self._store, shard, self._earlier)
        job = await self._ended(begun)
        if isinstance(job, ShardResult):
            self._receive(job)
            return
        self._open[shard], self._left[shard], self._since[shard] = job, len(job.prepared), perf_counter()
        for index, prepared in job.prepared.items():
            self._waiting.append((job, index, prepared))
            self._waiting_bytes += prepared.picture.byte_size
        if not job.prepared:
            self._write_next(shard)

    async def _ask(self, job: LabelJob, index: int, prepared: PreparedRequest) -> None:
        job.guidance[index] = await self._writer.answer(prepared)
        self._left[job.shard] -= 1
        if self._left[job.shard] == 0:
            self._write_next(job.shard)

    def _write_next(self, shard: Shard) -> None:
        self._storing.start(self._write(self._open.pop(shard)))

    async def _write(self, job: LabelJob) -> None:
        done = replace(job, prepared={})
        stored = await self._ended(self._pool.beside(store_labels, self._store, done))
        self._receive(replace(stored, seconds=perf_counter() - self._since[job.shard]))

    async def _ended(self, work: "Future[Result]") -> Result:
        with worker_deaths():
            return await asyncio.wrap_future(work)

    async def _abandon(self, error: BaseException) -> None:
        """Send no more requests; write the shards that have answers."""
        await self._supervisor.stop(self._asking, self._certifying)
        if not isinstance(error, (*ENDS_THE_RUN, asyncio.CancelledError)):
            return  # an error of the disk or the program
        reason = str(error) if isinstance(error, ServerGoneError) else "the run was stopped"
        for job in self._open.values():
            if any(index in job.guidance for index in job.prepared):
                for index, prepared in job.prepared.items():
                    unasked = Guidance("", Objection(UNANSWERED, reason), prompt=prepared.prompt)
                    job.guidance.setdefault(index, unasked)
                store_labels(self._store, replace(job, prepared={}))
