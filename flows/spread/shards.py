"""The pending shards of a rollout stage, and reports of stored ones."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...core.progress import Reporter
from ...datasets.store.config import Shard
from ...datasets.store.inputs import ROLLOUT
from ...datasets.store.run import Run
from ...datasets.store.stages.base import ShardResult, report_stored
from ...datasets.store.stages.rollout import RolloutJob, rollout_job
from ...datasets.store.store import Store
from ...environments.base import Task
from ...rollouts.loop import Batch


class PendingShards:
    """The shards of a stage that no earlier run has stored, one after the other."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[Shard, Sequence[Task]],
        reporter: Reporter,
        on_shard: Callable[[Shard], None] | None,
    ) -> None:
        """Report every episode to ``reporter`` and every newly stored shard to ``on_shard``."""
        self.store = store
        self.results: list[ShardResult] = []
        self._tasks, self._reporter, self._on_shard = tasks, reporter, on_shard
        self._left = deque(tasks)
        self._twice = 0

    def __len__(self) -> int:
        """Return the number of shards that have not been assigned."""
        return len(self._left)

    @property
    def episodes(self) -> int:
        """Number of episodes of all shards."""
        return sum(map(self._size, self._tasks))

    def _size(self, shard: Shard) -> int:
        return (shard.stop - shard.first) * self.store.config.rollouts

    def next(self) -> RolloutJob | None:
        """Return the pending episodes of the next shard that is not stored whole, None at the end.

        Raises:
            StoreError: the receipt of a shard cannot be read.
        """
        while self._left:
            shard = self._left.popleft()
            job = rollout_job(self.store, shard, self._tasks[shard])
            if isinstance(job, RolloutJob):
                if job.pending.episodes is not None:
                    self._report(self._size(shard) - len(job.pending.episodes))
                return job
            self.results.append(job)
            report_stored(self._reporter, job)
            self._report(self._size(shard))  # also one that was stored just before its worker was lost
        return None

    def give_back(self, shards: Iterable[Shard], ended: int) -> None:
        """Take back shards of a lost worker, which played ``ended`` of their episodes in vain."""
        self._left.extendleft(shards)
        self._twice += ended

    def ended(self) -> None:
        """Report an episode that is over."""
        self._report(1)

    def _report(self, episodes: int) -> None:
        """Report episodes, but none a second time that was over before and is played again."""
        again = min(self._twice, episodes)
        self._twice -= again
        if episodes > again:
            self._reporter.advance(ROLLOUT, episodes - again)

    def stored(self, result: ShardResult) -> None:
        """Report a stored shard."""
        self.results.append(result)
        report_stored(self._reporter, result)
        if self._on_shard is not None:
            self._on_shard(result.shard)


def batch_of(run: Run, job: RolloutJob) -> Batch:
    """Return a job as a batch of the rollout scheduler."""
    env = run.env(job.shard.env)
    return Batch(
        env.type,
        env.config,
        job.tasks,
        run.config.rollouts,
        job.pending.episodes,
        run.run_ids(job.shard),
        prompt=env.prompt,
        work=job,
    )


def episodes_of(run: Run, job: RolloutJob) -> int:
    """Return how many episodes a job plays."""
    episodes = job.pending.episodes
    return len(job.tasks) * run.config.rollouts if episodes is None else len(episodes)
