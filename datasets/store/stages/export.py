"""Write one shard's part of the Hugging Face dataset."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ...export.base import LabelledShard
from ...export.dataset import DatasetExporter
from ..dataset_rows import ShardSplit, dataset_file, shard_sides
from ..inputs import EXPORT, export_inputs, export_stage
from ..schema import DATASET
from ..store import DATASET_FOLDER
from .base import Pending, Product, Stage


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
        return export_stage(self.store.config, staged=self.folder != DATASET_FOLDER)

    @cached_property
    def _splits(self) -> dict[str, str]:
        return shard_sides(self.store, self.shard, self.split)

    def inputs(self) -> str:
        """Return the digest of everything that decides the files."""
        return export_inputs(self.store, self.store.run, self.shard, self._splits, self.folder)

    def make(self, pending: Pending) -> Product:
        """Compose the records from the stored rows."""
        del pending
        tables = DatasetExporter().tables(LabelledShard(self.store, self.shard, self._splits))
        files = [
            (dataset_file(self.folder, schema, self.shard, side), schema, table)
            for (schema, side), table in tables.items()
        ]
        return Product(files, {"rows": sum(table.num_rows for _, schema, table in files if schema is DATASET)})
