"""The dataset of a store, for TRL and the Hugging Face library: one row per accepted failure, and whole episodes."""

from ..store.config import Shard
from ..store.dataset_rows import SIDES, dataset_file, episode_row, record_row
from ..store.schema import DATASET, DATASET_EPISODES, TableSchema
from ..store.tables import Rows
from .base import Exporter, ExportTables, LabelledShard


class DatasetExporter(Exporter):
    """Both configs of the dataset: records, and whole episodes."""

    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return records and whole episodes for both sides of the split."""
        records: dict[str, Rows] = {side: [] for side in SIDES}
        whole: dict[str, Rows] = {side: [] for side in SIDES}
        modes = shard.store.run.failure_modes
        for each in shard.episodes():
            whole[each.side].append(episode_row(each.episode, each.steps, each.frames))
            if each.label is not None:
                row = record_row(each.episode, each.steps, each.label, each.messages, each.frames, modes)
                records[each.side].append(row)
        tables = {(DATASET, side): DATASET.table(rows, features=True, labels=modes) for side, rows in records.items()}
        return tables | {
            (DATASET_EPISODES, side): DATASET_EPISODES.table(rows, features=True) for side, rows in whole.items()
        }

    def file(self, schema: TableSchema, shard: Shard, side: str) -> str:
        """Return the name of a file: records are in the folder of the environment, episodes in one with a suffix."""
        return dataset_file("", schema, shard, side)[1:]
