"""Roll out the levels of a shard: tables of episodes, steps, frames, prompts and calls."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ....environments.base import Task
from ....rollouts.base import Batch, TaskRollouts
from ....rollouts.loop import roll_out_batch
from ..inputs import PENDING_EPISODES, ROLLOUT, rollout_facts, rollout_inputs
from ..schema import EPISODES, STORE_TABLES
from ..tables import rollout_tables, stored_rollouts
from .base import Pending, Product, Stage


@dataclass(frozen=True)
class RolloutStage(Stage):
    """Rolls out the levels of a shard, or only the episodes that an earlier run left broken."""

    tasks: Sequence[Task]

    title: ClassVar[str] = ROLLOUT
    pending_fact: ClassVar[str | None] = PENDING_EPISODES

    def inputs(self) -> str:
        """Return the digest of everything that decides the episodes."""
        return rollout_inputs(self.store.run, self.shard, self.tasks)

    def make(self, pending: Pending) -> Product:
        """Play the pending episodes with the policy of the run."""
        return self.product(pending, roll_out_batch(self.batch(pending), self.store.run.policy()))

    def batch(self, pending: Pending) -> Batch:
        """Return the pending episodes for the rollout loop."""
        run = self.store.run
        env, ids = run.env(self.shard.env), run.run_ids(self.shard)
        return Batch(env.type, env.config, self.tasks, run.config.rollouts, pending.episodes, ids, prompt=env.prompt)

    def product(self, pending: Pending, rollouts: Sequence[TaskRollouts]) -> Product:
        """Return the tables of episodes that were played, with the episodes that the shard already has."""
        store = self.store
        if pending.episodes is not None:
            stored = stored_rollouts({schema: store.read(schema, self.shard) for schema in STORE_TABLES})
            pairs = zip(stored, rollouts, strict=True)
            rollouts = [_merged(before, after, pending.episodes) for before, after in pairs]
        tables = rollout_tables(rollouts)
        files = [(store.table_file(schema, self.shard), schema, tables[schema]) for schema in STORE_TABLES]
        return Product(files, rollout_facts(tables[EPISODES]))


def _merged(before: TaskRollouts, after: TaskRollouts, replaced: Collection[str]) -> TaskRollouts:
    from ..usage import calls_in_all  # noqa: PLC0415 - only for a shard that is completed

    fresh = {episode.episode_id: episode for episode in after.episodes}
    index = {episode.episode_id: number for number, episode in enumerate(before.episodes)}
    calls = calls_in_all(before.calls, after.calls, replaced)
    return TaskRollouts(
        task=before.task,
        episodes=[fresh.get(episode.episode_id, episode) for episode in before.episodes],
        frames=before.frames | after.frames,
        prompts=before.prompts | after.prompts,
        calls=sorted(calls, key=lambda call: index[call.episode_id]),
    )
