"""Records of a built dataset for evaluation: a local folder, a store, or a hub id, one side of the split at a time.

Rows are read file by file and batch by batch, with the columns that are asked for: labels and logs of a whole side fit
into memory, its pictures need not. Whatever a row holds is checked before it is used; a message names file and row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..datasets.schema import DATASET
from ..datasets.split import SIDES
from ..datasets.store import DATASET_FOLDER
from ..errors import TrainingError
from ..storage import open_storage

LABEL_COLUMNS = (
    "episode_id",
    "env",
    "env_config",
    "task_id",
    "completion",
    "pivot_step",
    "failure_mode",
    "actions",
    "action_log",
    "initial_state",
    "horizon",
    "num_steps",
    "certificate",
    "witness",
)
"""Everything but what the Analyzer is shown."""
SHOWN_COLUMNS = ("episode_id", "env", "prompt", "images", "num_steps", "completion")
"""What it is shown, and what bounds its answer."""

BATCH_ROWS = 8
"""Rows in memory at a time while pictures are read; a collage of rendered views takes up to 1 MB."""

ALL = "all"
"""The config of all environments."""


@dataclass(frozen=True)
class Records:
    """The records of one config of a dataset."""

    address: str
    """Folder or hub id, for messages."""
    config: str
    files: dict[str, list[str]]
    """Parquet files by side; empty for a dataset of the hub."""
    hub: bool = False

    def rows(self, side: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a side in a fixed order, with the columns asked for; pictures stay encoded.

        Raises:
            TrainingError: a file is torn, has other columns, or holds a row that is no record.
        """
        source = self._hub_rows(side, columns) if self.hub else self._file_rows(side, columns)
        for where, row in source:
            _check(where, row)
            yield row

    def _file_rows(self, side: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        storage = open_storage(Path(self.address))
        for name in self.files[side]:
            where, number = storage.address(name), 0
            try:
                with storage.open(name) as stream, pq.ParquetFile(stream) as file:
                    _check_columns(where, file.schema_arrow, columns)
                    for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                        for row in batch.to_pylist():
                            yield f"{where}, row {number}", row
                            number += 1
            except (pa.ArrowException, OSError) as error:
                raise TrainingError(
                    f"{where} cannot be read as Parquet ({error}); download or build it again"
                ) from error

    def _hub_rows(self, side: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        # Imported here: the library takes a second, and local folders are read without it.
        from datasets import Image, List, load_dataset  # noqa: PLC0415

        try:
            rows: Any = load_dataset(self.address, self.config, split=side, streaming=True)
            rows = rows.cast_column("images", List(Image(decode=False))).select_columns(list(columns))
        except (OSError, ValueError, KeyError) as error:
            raise TrainingError(
                f"{self.address} is no folder, and the hub gives no such dataset with config {self.config!r} and split "
                f"{side!r} ({error}); give a store, a dataset folder or a hub id"
            ) from error
        for number, row in enumerate(rows):
            yield f"{self.address}, {side} row {number}", row


def open_records(address: str, config: str = ALL) -> Records:
    """Find the records of ``config`` (an environment, or ``all``) in a store, a dataset folder, or on the hub.

    Raises:
        TrainingError: there is nothing of the kind.
    """
    root = Path(address)
    storage = open_storage(root)
    if not storage.exists():
        if address.count("/") == 1 and not address.startswith((".", "/")):
            return Records(address, config, {}, hub=True)
        raise TrainingError(
            f"{address} does not exist; give a store, a dataset folder or a hub id such as NAME/DATASET"
        )
    if any(name.startswith(f"{DATASET_FOLDER}/") for name in storage.listing(DATASET_FOLDER)):
        root = root / DATASET_FOLDER
        storage = open_storage(root)
    names = [name for name in storage.listing() if name.endswith(".parquet") and name.count("/") == 1]
    parts = sorted({name.partition("/")[0] for name in names})
    environments = [part for part in parts if not part.endswith("_episodes")]
    if not environments:
        raise TrainingError(f"{root} holds no dataset (ENVIRONMENT/train-*.parquet); make one with: pivot build")
    if config not in (ALL, *environments):
        raise TrainingError(f"{root} has no config {config!r}; it has: {', '.join((ALL, *environments))}")
    chosen = environments if config == ALL else [config]
    files = {side: [name for part in chosen for name in names if name.startswith(f"{part}/{side}-")] for side in SIDES}
    return Records(str(root), config, files)


def _check_columns(where: str, schema: pa.Schema, columns: Sequence[str]) -> None:
    declared = {column.name: column.type for column in DATASET.columns}
    for name in columns:
        if name not in schema.names:
            raise TrainingError(f"{where} has no column {name!r}; it is no file of a PIVOT dataset: build it again")
        found = schema.field(name).type
        if found != declared[name]:
            raise TrainingError(f"{where}: column {name!r} has type {found}, expected {declared[name]}; build it again")


def _check(where: str, row: dict[str, Any]) -> None:
    """Refuse a row that is no record, with its place."""
    steps = row.get("num_steps")
    if "actions" in row and not (steps == len(row["actions"]) == len(row["action_log"].splitlines()) and steps):
        raise TrainingError(f"{where}: num_steps is {steps}, but it has {len(row['actions'])} actions; build it again")
    if "pivot_step" in row and not 0 <= row["pivot_step"] < (steps or 0):
        raise TrainingError(
            f"{where}: pivot_step is {row['pivot_step']}, expected 0 to {(steps or 0) - 1}; remove the row"
        )
    if "images" in row:
        pictures = row["images"] or []
        if len(pictures) != 1 or not (pictures[0] or {}).get("bytes"):
            raise TrainingError(f"{where}: it holds {len(pictures)} pictures with content, expected one collage")
