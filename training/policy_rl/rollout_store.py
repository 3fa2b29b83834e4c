"""What a run of Stage II played, as a store of its own: ``OUT/rollouts``, a shard an update.

Tables, config and receipts are those of a build whose rollouts are done and nothing else, so that labels, dataset and
manifest are made as for every store, at the end of the run or whenever somebody wants to look
(``pivot build --config OUT/rollouts/run.json --out OUT/rollouts``). Nothing here is read by the training.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...datasets.config import EnvRun, PartConfig, RunConfig
from ...datasets.inputs import ROLLOUT
from ...datasets.run import Run
from ...datasets.schema import STORE_TABLES
from ...datasets.stages.base import Pending
from ...datasets.stages.rollout import RolloutStage
from ...datasets.store import DATABASE, MANIFEST, Store
from ...rollouts.base import TaskRollouts
from ...rollouts.policies import NAME
from .config import RlConfig
from .levels import Levels

FOLDER = "rollouts"


class PlayedStore:
    """Keeps the rollouts of every ``keep_rollouts``-th update of a run."""

    def __init__(self, run_folder: Path, levels: Levels, config: RlConfig, policy: Mapping[str, Any]) -> None:
        """Keep rollouts under ``run_folder``; ``policy`` is the config of the policy in the first update kept."""
        self._root, self._levels, self._config, self._policy = run_folder / FOLDER, levels, config, dict(policy)
        self._run = Run(self._asked(1))

    def _asked(self, shards: int) -> RunConfig:
        """Return the config of the store after so many shards: all of it is known beforehand."""
        config, levels = self._config, self._levels
        updates = [(shard + 1) * config.keep_rollouts for shard in range(shards)]
        drawn = tuple(levels.places[place] for update in updates for place in levels.drawn(update, config))
        env = EnvRun(tasks=len(drawn), settings=levels.config.model_dump(mode="json"), drawn=drawn)
        return RunConfig(
            environments={config.env: env},
            rollouts=config.rollouts,
            seed=config.seed,
            policy=PartConfig(name=NAME, options={"config": self._policy}),
            validation_fraction=config.held_out,
            tasks_per_shard=config.prompts,
        )

    def run_id(self, policy: Mapping[str, Any]) -> str:
        """Return what the episodes of a policy carry as their run."""
        return self._run.run_id_with(policy)

    def keep(self, number: int, rollouts: Sequence[TaskRollouts]) -> None:
        """Store the rollouts of update ``number``, if they are to be kept.

        Raises:
            StoreError: they cannot be written.
        """
        shards, rest = divmod(number, self._config.keep_rollouts) if self._config.keep_rollouts else (0, 1)
        if rest:
            return
        config = self._asked(shards)
        store, shard = Store(self._root, config), config.shards()[-1]
        for name in (MANIFEST, DATABASE):
            store.storage.delete(name)
        stage = RolloutStage(store, shard, [record.task for record in rollouts])
        pending = Pending(stage.inputs())
        stage.write(pending, stage.product(pending, rollouts))
        store.write_run()

    def forget_after(self, number: int) -> None:
        """Forget the updates after ``number``, which will be made again, and all that was made of rollouts."""
        shards = number // self._config.keep_rollouts if self._config.keep_rollouts else 0
        store = Store(self._root, self._asked(max(1, shards)))
        kept = store.config.shards() if shards else []
        files = {store.table_file(schema, shard) for schema in STORE_TABLES for shard in kept}
        files |= {store.receipt_file(ROLLOUT, shard) for shard in kept}
        for name in store.storage.listing():
            if name not in files:
                store.storage.delete(name)
        if kept:
            store.write_run()
