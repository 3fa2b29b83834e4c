"""Write one shard's part of the Hugging Face dataset."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ....core.identity import digest
from ...export.base import LabelledShard
from ...export.dataset import DatasetExporter
from ..config import FORMAT
from ..dataset_rows import ShardSplit, dataset_file, shard_sides
from ..schema import DATASET
from ..store import DATASET_FOLDER
from .base import EXPORT, ROLLOUT, Pending, Product, Stage, file_digests
from .label import LabelStage


@dataclass(frozen=True)
class ExportStage(Stage):
    """Writes the records and whole episodes of a shard, each into its split."""

    split: ShardSplit
    """Facts of other shards that decide the splits of this one."""
    folder: str = DATASET_FOLDER

    title: ClassVar[str] = EXPORT
    sparse: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the stage in receipts: a dataset that a relabelling prepares has its own."""
        return f"{EXPORT}-v{self.store.config.label_version}{'-staged' if self.folder != DATASET_FOLDER else ''}"

    @cached_property
    def _splits(self) -> dict[str, str]:
        return shard_sides(self.store, self.shard, self.split)

    def inputs(self) -> str:
        """Return the digest of everything that decides the files."""
        store, shard = self.store, self.shard
        return digest(
            {
                "format": FORMAT,
                "rollouts": file_digests(store, ROLLOUT, shard),
                "labels": file_digests(store, LabelStage(store, shard).name, shard),
                "include_infeasible": store.config.include_infeasible,
                "sides": sorted(self._splits.items()),
                "modes": store.run.failure_modes,
                "folder": self.folder,
            }
        )

    def make(self, pending: Pending) -> Product:
        """Compose the records from the stored rows."""
        del pending
        tables = DatasetExporter().tables(LabelledShard(self.store, self.shard, self._splits))
        files = [
            (dataset_file(self.folder, schema, self.shard, side), schema, table)
            for (schema, side), table in tables.items()
        ]
        return Product(files, {"rows": sum(table.num_rows for _, schema, table in files if schema is DATASET)})
