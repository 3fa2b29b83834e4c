"""Stages of shards that wait for a model: several shards share an event loop, so that the model stays busy.

Each worker process plays or labels its own shards with its own connections. All workers of a machine take the slots of
the model from one shared semaphore (:mod:`..models.pacing`); workers of a cluster get an equal share each. A model that
is loaded into the process has one loop, in the process of the run. Receipts are those of every other stage.
"""

import asyncio
import contextlib
import math
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from ..core.errors import ServerGoneError
from ..core.messages import Role
from ..core.progress import Reporter
from ..datasets.store.config import Shard
from ..datasets.store.stages import LabelStage, Pending, RolloutStage, ShardResult, Stage, report_stored
from ..labeling.base import UNANSWERED, Guidance, Objection
from ..labeling.label import Certified
from ..labeling.writers.concurrent import ConcurrentWriter, PreparedRequest
from ..rollouts.base import Batch, TaskRollouts
from ..rollouts.episode import ENDS_THE_RUN
from ..rollouts.scheduler import Supervisor, run_batches, run_without_gc_pauses
from .engines.base import WorkerPool
from .engines.processes import count_episodes, finished

ROUNDS = 16
"""Episodes of a group of shards, as a multiple of a worker's share of the slots; when a group ends, others use its
slots."""

Over = Callable[[int], None]
"""Gets a number of episodes that are over."""
Receive = Callable[[ShardResult], None]
"""Gets a shard that is stored, in any thread."""
Work = Callable[[Sequence[Any], Receive, Over], None]
"""Brings shards through a stage in one event loop: :func:`roll_out` or :func:`label`."""


def run_served(
    work: Work, stages: Sequence[Stage], role: Role, pool: WorkerPool, reporter: Reporter
) -> list[ShardResult]:
    """Bring all shards through a stage whose model plays ``role``; report episodes, and shards as they are stored.

    Raises:
        ServerGoneError: the model no longer answers; finished shards are stored, and the next run resumes.
        StoreError: a shard cannot be read or written, or a worker died.
        ConfigError, PluginError: the model cannot be used with these settings.
    """
    title, run = stages[0].title, stages[0].store.run
    reporter.start(title, sum(stage.episodes for stage in stages))
    results: list[ShardResult] = []

    def receive(result: ShardResult) -> None:
        results.append(result)
        report_stored(reporter, result)

    limit = run.slots(role)
    if limit is None or pool.workers == 1:
        work(stages, receive, lambda count: reporter.advance(title, count))
        reporter.finish(title)
        return results
    share = pool.share(limit)
    stages = [replace(stage, store=stage.store.with_service(role, max_concurrency=share)) for stage in stages]
    groups = _groups(stages, math.ceil(limit / pool.workers), pool.workers)
    pending = {pool.submit(_in_worker, work, group): group for group in groups}
    shown, ended, before = 0, 0, pool.episodes()
    try:
        while pending:
            done, _ = wait(pending, 1.0, FIRST_COMPLETED)
            for future in done:
                group = pending.pop(future)
                for result in finished(future):
                    receive(result)
                ended += sum(stage.episodes for stage in group)
            over = max(ended, pool.episodes() - before)
            if over > shown:
                reporter.advance(title, over - shown)
                shown = over
    except BaseException:
        for future in pending:
            future.cancel()
        pool.stop()  # loops end in good order, and store what is finished
        raise
    reporter.finish(title)
    return results


def _groups(stages: Sequence[Stage], share: int, workers: int) -> list[list[Stage]]:
    """Return the shards in groups of about ``ROUNDS`` times the share of a worker, or smaller to give all work."""
    total = sum(stage.episodes for stage in stages)
    count = min(len(stages), max(workers, math.ceil(total / (ROUNDS * share))))
    return [[*stages[len(stages) * n // count : len(stages) * (n + 1) // count]] for n in range(count)]


def _in_worker(work: Work, stages: Sequence[Stage]) -> list[ShardResult]:
    results: list[ShardResult] = []
    work(stages, results.append, count_episodes)
    return results


def _in_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run an event loop that SIGTERM ends like Ctrl-C in a worker process, where finished episodes are stored first."""

    async def stoppable() -> None:
        task = asyncio.current_task()
        if task is not None and multiprocessing.parent_process() is not None:
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: Ray and Dask end it themselves
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await work

    run_without_gc_pauses(stoppable())


def roll_out(stages: Sequence[RolloutStage], receive: Receive, over: Over) -> None:
    """Roll out shards in one event loop. The errors are those of :func:`run_served`."""
    began: dict[Shard, float] = {}

    def batches() -> Iterator[Batch]:
        for stage in stages:
            pending = stage.check()
            if isinstance(pending, ShardResult):
                receive(pending)
                over(stage.episodes)
                continue
            if pending.episodes is not None:
                over(stage.episodes - len(pending.episodes))
            began[stage.shard] = perf_counter()
            yield replace(stage.batch(pending), work=(stage, pending))

    def store(batch: Batch, rollouts: list[TaskRollouts]) -> None:
        stage: RolloutStage = batch.work[0]
        pending: Pending = batch.work[1]
        stored = stage.write(pending, stage.product(pending, rollouts))
        receive(replace(stored, seconds=perf_counter() - began[stage.shard]))

    _in_loop(run_batches(batches(), stages[0].store.run.policy(), store, on_episode=lambda: over(1)))


@dataclass(slots=True)
class _LabelJob:
    """Certified failures of a shard, some of whose guidance is still to be requested."""

    stage: LabelStage
    pending: Pending
    certified: list[Certified]
    guidance: dict[int, Guidance]
    """Guidance by the index of the failure: what is stored and still answers, and then the answers."""
    prepared: dict[int, PreparedRequest]
    began: float


def label(stages: Sequence[LabelStage], receive: Receive, over: Over) -> None:
    """Label shards in one event loop.

    When the run has to stop, shards with answers are written, and their other labels are ``unanswered``: the next run
    requests only these. The errors are those of :func:`run_served`.
    """
    _in_loop(_Labelling(stages, receive, over).run())


class _Labelling:
    """The state of one :func:`label`."""

    def __init__(self, stages: Sequence[LabelStage], receive: Receive, over: Over) -> None:
        self._stages, self._receive, self._over = deque(stages), receive, over
        self._writer: ConcurrentWriter = stages[0].store.run.writer()  # pyright: ignore[reportAttributeAccessIssue]
        self._waiting: deque[tuple[_LabelJob, int]] = deque()
        self._open: list[_LabelJob] = []

    async def run(self) -> None:
        self._supervisor = Supervisor()
        self._asking = self._supervisor.group()
        try:
            await self._supervisor.run(self._begin)
        except BaseException as error:
            await self._abandon(error)
            raise
        finally:
            await self._writer.aclose()

    def _begin(self) -> None:
        while self._waiting and len(self._asking) < self._writer.in_flight:
            self._asking.start(self._ask(*self._waiting.popleft()))
        if self._stages and len(self._asking) < self._writer.in_flight:
            self._asking.start(self._certify(self._stages.popleft()))  # when the requests above are on their way

    async def _certify(self, stage: LabelStage) -> None:
        began, pending = perf_counter(), stage.check()
        if isinstance(pending, ShardResult):
            self._receive(pending)
            self._over(stage.episodes)
            return
        certified, requests = stage.certify()
        kept = stage.kept_guidance(pending, requests)
        prepared = {index: self._writer.prepare(each) for index, each in requests.items() if index not in kept}
        job = _LabelJob(stage, pending, certified, kept, prepared, began)
        self._open.append(job)
        self._waiting += [(job, index) for index in prepared]
        if not prepared:
            self._write(job)

    async def _ask(self, job: _LabelJob, index: int) -> None:
        job.guidance[index] = await self._writer.answer(job.prepared[index])
        if job.prepared.keys() <= job.guidance.keys():
            self._write(job)

    def _write(self, job: _LabelJob) -> None:
        self._open.remove(job)
        stored = job.stage.write(job.pending, job.stage.product(job.pending, job.certified, job.guidance))
        self._receive(replace(stored, seconds=perf_counter() - job.began))
        self._over(job.stage.episodes)

    async def _abandon(self, error: BaseException) -> None:
        """Send no more requests; write the shards that have answers."""
        await self._supervisor.stop(self._asking)
        if not isinstance(error, (*ENDS_THE_RUN, asyncio.CancelledError)):
            return  # an error of the disk or the program
        reason = str(error) if isinstance(error, ServerGoneError) else "the run was stopped"
        for job in list(self._open):
            if any(index in job.guidance for index in job.prepared):
                for index, prepared in job.prepared.items():
                    unasked = Guidance("", Objection(UNANSWERED, reason), prompt=prepared.prompt)
                    job.guidance.setdefault(index, unasked)
                self._write(job)
