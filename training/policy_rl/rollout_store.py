"""The rollouts of a run of Stage II as a store: ``OUT/rollouts``, one shard per update.

Tables, config and receipts are those of a build that was stopped after its rollouts, so that labels, dataset and
manifest are made as for every store, at the end of the run or earlier (``pivot build --config OUT/rollouts/run.json
--out OUT/rollouts``). The training does not read this store. Only runs that store rollouts import pyarrow.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.storage import open_storage
from ...datasets.store.config import EnvRun, PartConfig, RunConfig
from ...datasets.store.run import Run
from ...rollouts.base import TaskRollouts
from ...rollouts.policies import NAME
from .config import RlConfig
from .levels import Levels

FOLDER = "rollouts"


class PlayedStore:
    """Stores the rollouts of every ``keep_rollouts``-th update of a run."""

    def __init__(self, run_folder: Path, levels: Levels, config: RlConfig, policy: Mapping[str, Any]) -> None:
        """Store rollouts in ``run_folder``; ``policy`` is the config of the policy in the first stored update."""
        self._root, self._levels, self._config, self._policy = run_folder / FOLDER, levels, config, dict(policy)
        self._run = Run(self._store_config(1))

    def _store_config(self, shards: int) -> RunConfig:
        """Return the config of the store with ``shards`` shards; it does not depend on the rollouts."""
        config, levels = self._config, self._levels
        updates = [(shard + 1) * config.keep_rollouts for shard in range(shards)]
        drawn = tuple(levels.indices[index] for update in updates for index in levels.sample(update, config))
        settings = levels.config.model_dump(mode="json")
        return RunConfig(
            environments={config.env: EnvRun(tasks=len(drawn), settings=settings, drawn=drawn)},
            rollouts=config.rollouts,
            seed=config.seed,
            policy=PartConfig(name=NAME, options={"config": self._policy}),
            validation_fraction=config.held_out,
            tasks_per_shard=config.prompts,
        )

    def run_id(self, policy: Mapping[str, Any]) -> str:
        """Return the run id of the episodes of a policy."""
        return self._run.run_id_with(policy)

    def store(self, number: int, rollouts: Sequence[TaskRollouts]) -> None:
        """Store the rollouts of update ``number``, if ``keep_rollouts`` includes it.

        Raises:
            StoreError: the rollouts cannot be written.
        """
        shards, rest = divmod(number, self._config.keep_rollouts) if self._config.keep_rollouts else (0, 1)
        if rest:
            return
        from ...datasets.store.stages import Pending, RolloutStage  # noqa: PLC0415
        from ...datasets.store.store import DATABASE, MANIFEST, Store  # noqa: PLC0415

        store = Store(self._root, self._store_config(shards))
        for name in (MANIFEST, DATABASE):
            store.storage.delete(name)
        stage = RolloutStage(store, store.config.shards()[shards - 1], [record.task for record in rollouts])
        pending = Pending(stage.inputs())
        stage.write(pending, stage.product(pending, rollouts))
        store.write_run()

    def remove_after(self, number: int) -> None:
        """Remove the updates after ``number``, which a resumed run repeats, and all files made from rollouts."""
        shards = number // self._config.keep_rollouts if self._config.keep_rollouts else 0
        if not shards:
            storage = open_storage(self._root)
            for name in storage.listing():
                storage.delete(name)
            return
        from ...datasets.store.schema import STORE_TABLES  # noqa: PLC0415
        from ...datasets.store.stages import ROLLOUT  # noqa: PLC0415
        from ...datasets.store.store import Store  # noqa: PLC0415

        store = Store(self._root, self._store_config(shards))
        kept = store.config.shards()
        files = {store.table_file(schema, shard) for schema in STORE_TABLES for shard in kept}
        files |= {store.receipt_file(ROLLOUT, shard) for shard in kept}
        for name in store.storage.listing():
            if name not in files:
                store.storage.delete(name)
        store.write_run()
