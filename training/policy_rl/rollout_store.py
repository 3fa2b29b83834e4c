"""The rollouts of a run of Stage II as a store: ``OUT/rollouts``, one shard per update.

Tables, config and receipts are those of a build that was stopped after its rollouts, so that labels, dataset and
manifest are made as for every store, at the end of the run or earlier (``pivot build --config OUT/rollouts/run.json
--out OUT/rollouts``). The training does not read this store.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...datasets.store.config import EnvRun, PartConfig, RunConfig
from ...datasets.store.inputs import ROLLOUT
from ...datasets.store.run import Run
from ...datasets.store.schema import STORE_TABLES
from ...datasets.store.stages.base import Pending
from ...datasets.store.stages.rollout import RolloutStage
from ...datasets.store.store import DATABASE, MANIFEST, RUN, Store, stored_config
from ...rollouts.base import TaskRollouts
from ...rollouts.policies import NAME
from .config import RlConfig
from .mixture import Member

FOLDER = "rollouts"


class PlayedStore:
    """Stores the rollouts of every ``keep_rollouts``-th update of a run."""

    def __init__(
        self, run_folder: Path, members: Sequence[Member], config: RlConfig, policy: Mapping[str, Any]
    ) -> None:
        """Store rollouts in ``run_folder``; ``policy`` is the config of the policy in the first stored update."""
        self._root, self._members, self._config, self._policy = run_folder / FOLDER, members, config, dict(policy)
        self._drawn: dict[tuple[str, int], tuple[int, ...]] = {}
        """Levels of updates that played others than :meth:`.Levels.sample` names, by environment and update."""
        self._run = Run(self._store_config(1))
        self._drawn = self._stored()

    def _stored(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Return the levels of each stored update, as the store of a resumed run names them."""
        store = Store(self._root, self._store_config(1))
        if not self._config.resample or store.storage.stat(RUN) is None:
            return {}
        config, every = stored_config(self._root, complete=False), self._config.keep_rollouts
        stored: dict[tuple[str, int], tuple[int, ...]] = {}
        for member in self._members:
            drawn, per = config.environments[member.env].drawn or (), member.config.prompts
            for first in range(0, len(drawn), per):
                stored[member.env, every * (1 + first // per)] = tuple(drawn[first : first + per])
        return stored

    def _levels_of(self, member: Member, update: int) -> tuple[int, ...]:
        """Return the levels of an update by their indices in the plan of all levels of the environment."""
        sampled = member.levels.sample(update, member.config)
        return self._drawn.get((member.env, update)) or tuple(member.levels.indices[index] for index in sampled)

    def _store_config(self, shards: int) -> RunConfig:
        """Return the config of the store with ``shards`` shards; it does not depend on the rollouts."""
        config, most = self._config, max(member.config.prompts for member in self._members)
        updates = [(shard + 1) * config.keep_rollouts for shard in range(shards)]
        environments: dict[str, EnvRun] = {}
        for member in self._members:
            drawn = tuple(index for update in updates for index in self._levels_of(member, update))
            settings, per = member.levels.config.model_dump(mode="json"), member.config.prompts
            environments[member.env] = EnvRun(
                tasks=len(drawn), settings=settings, drawn=drawn, tasks_per_shard=None if per == most else per
            )
        return RunConfig(
            environments=environments,
            rollouts=config.rollouts,
            seed=config.seed,
            policy=PartConfig(name=NAME, options={"config": self._policy}),
            validation_fraction=config.held_out,
            tasks_per_shard=most,
        )

    def run_id(self, policy: Mapping[str, Any]) -> str:
        """Return the run id of the episodes of a policy."""
        return self._run.run_id_with(policy)

    def store(self, number: int, played: Sequence[tuple[Sequence[TaskRollouts], Sequence[int]]]) -> None:
        """Store the rollouts of update ``number``, if ``keep_rollouts`` includes it.

        Args:
            number: number of the update.
            played: rollouts and indices of their levels, per environment.

        Raises:
            StoreError: the rollouts cannot be written.
        """
        shards, rest = divmod(number, self._config.keep_rollouts) if self._config.keep_rollouts else (0, 1)
        if rest:
            return
        for member, (_, indices) in zip(self._members, played, strict=True):
            self._drawn[member.env, number] = tuple(member.levels.indices[index] for index in indices)
        store = Store(self._root, self._store_config(shards))
        for name in (MANIFEST, DATABASE):
            store.storage.delete(name)
        last = [shard for shard in store.config.shards() if shard.number == shards - 1]
        for shard, (rollouts, _) in zip(last, played, strict=True):
            stage = RolloutStage(store, shard, [record.task for record in rollouts])
            pending = Pending(stage.inputs())
            stage.write(pending, stage.product(pending, rollouts))
        store.write_run()

    def remove_after(self, number: int) -> None:
        """Remove the updates after ``number``, which a resumed run repeats, and all files made from rollouts."""
        shards = number // self._config.keep_rollouts if self._config.keep_rollouts else 0
        store = Store(self._root, self._store_config(max(1, shards)))
        kept = store.config.shards() if shards else []
        files = {store.table_file(schema, shard) for schema in STORE_TABLES for shard in kept}
        files |= {store.receipt_file(ROLLOUT, shard) for shard in kept}
        for name in store.storage.listing():
            if name not in files:
                store.storage.delete(name)
        if kept:
            store.write_run()
