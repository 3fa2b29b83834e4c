"""Roll out the levels of a shard: tables of episodes, steps, frames, prompts and calls."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from ....core.identity import digest
from ....environments.base import Task
from ....rollouts.base import Batch, Status, TaskRollouts
from ....rollouts.loop import roll_out_batch
from ..config import FORMAT
from ..schema import EPISODES, STORE_TABLES
from ..tables import rollout_tables, stored_rollouts
from .base import PENDING_EPISODES, ROLLOUT, Pending, Product, Stage


@dataclass(frozen=True)
class RolloutStage(Stage):
    """Rolls out the levels of a shard, or only the episodes that an earlier run left broken."""

    tasks: Sequence[Task]

    title: ClassVar[str] = ROLLOUT
    pending_fact: ClassVar[str | None] = PENDING_EPISODES

    def inputs(self) -> str:
        """Return the digest of everything that decides the episodes."""
        run, shard = self.store.run, self.shard
        env = run.envs[shard.env]
        return digest(
            {
                "format": FORMAT,
                "run": run.run_ids(shard),
                "env": [shard.env, env.type.profile.version, env.config.decisive()],
                "policy": run.policy().config_for(shard.env),
                "prompt": [env.prompt.template, env.prompt.version],
                "tasks": [asdict(task) for task in self.tasks],
            }
        )

    def make(self, pending: Pending) -> Product:
        """Play the pending episodes with the policy of the run."""
        return self.product(pending, roll_out_batch(self.batch(pending), self.store.run.policy()))

    def batch(self, pending: Pending) -> Batch:
        """Return the pending episodes for the rollout loop."""
        run = self.store.run
        env, ids = run.envs[self.shard.env], run.run_ids(self.shard)
        return Batch(env.type, env.config, self.tasks, run.config.rollouts, pending.episodes, ids, prompt=env.prompt)

    def product(self, pending: Pending, rollouts: Sequence[TaskRollouts]) -> Product:
        """Return the tables of the new episodes together with the shard's earlier episodes."""
        store = self.store
        if pending.episodes is not None:
            stored = stored_rollouts({schema: store.read(schema, self.shard) for schema in STORE_TABLES})
            pairs = zip(stored, rollouts, strict=True)
            rollouts = [_merged(before, after, pending.episodes) for before, after in pairs]
        tables = rollout_tables(rollouts)
        files = [(store.table_file(schema, self.shard), schema, tables[schema]) for schema in STORE_TABLES]
        rows = tables[EPISODES].select(["episode_id", "status", "failed"]).to_pylist()
        facts = {
            "episodes": len(rows),
            "succeeded": sum(row["failed"] is False for row in rows),
            "failed": sum(row["failed"] is True for row in rows),
            PENDING_EPISODES: [row["episode_id"] for row in rows if row["status"] == Status.ERROR],
        }
        return Product(files, facts)


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
