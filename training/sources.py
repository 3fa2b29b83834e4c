"""Where the records of a dataset are (a store, a dataset folder, the hub), and how its files are read, row by row.

Training and evaluation read the same files and say the same about what is wrong with them; what a row has to hold is
their own affair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..datasets.parquet import check_columns
from ..datasets.schema import DATASET, TableSchema
from ..datasets.split import SIDES
from ..datasets.store import DATASET_FOLDER, MANIFEST, RUN
from ..errors import StoreError, TrainingError
from ..identity import digest
from ..storage import FollowedPath, Storage, open_storage, parse_address

ALL = "all"
"""The config of all environments."""
REBUILD = "build the dataset again, or restore the file from a copy"
BATCH_ROWS = 8
"""Rows in memory at a time; a collage of rendered views takes up to 1 MB."""


@dataclass(frozen=True)
class DatasetFiles:
    """The Parquet files of the configs that were asked for."""

    storage: Storage
    """Of the dataset's folder, or of the hub's copy of it on this machine."""
    by_side: dict[str, list[tuple[str, str]]]
    """Names in ``storage`` with the environment that each may hold, in a fixed order."""
    manifest: str | None
    """SHA-256 of the store's manifest; None where the folder stands alone."""

    @property
    def digest(self) -> str:
        """The content: the manifest's digest, else one of all these files."""
        files = {name: self.storage.record(name).sha256 for names in self.by_side.values() for name, _ in names}
        return self.manifest or digest(files, 64)


def find_files(source: str, configs: Sequence[str] = (ALL,)) -> DatasetFiles:
    """Find the files of some configs, environments or ``all``; those of a dataset on the hub are fetched first.

    Raises:
        TrainingError: there is no such dataset, its build did not finish, or it lacks a config.
    """
    storage = open_storage(parse_address(source))
    if not storage.exists():
        if source.count("/") != 1 or source.startswith((".", "/", "~")):
            raise TrainingError(
                f"{source} does not exist; expected a store, a dataset folder, or a hub id such as user/name"
            )
        storage = open_storage(FollowedPath(_fetched(source, configs)))  # the hub's cache is made of links
    storage.check_contents()
    manifest = None
    if storage.stat(RUN) is not None:
        if storage.stat(MANIFEST) is None:
            raise TrainingError(f"{source} holds no {MANIFEST}: its build did not finish; run the same build again")
        manifest = storage.record(MANIFEST).sha256
        storage = open_storage(parse_address(source) / DATASET_FOLDER)
    present: dict[str, dict[str, list[str]]] = {}
    for name in sorted(storage.listing()):
        env, _, file = name.partition("/")
        side = file.partition("-")[0]
        if name.endswith(".parquet") and side in SIDES and "/" not in file and not env.endswith("_episodes"):
            present.setdefault(env, {}).setdefault(side, []).append(name)
    if not present:
        raise TrainingError(
            f"{source} holds no dataset, expected a store, or a folder with ENV/train-*.parquet as "
            "pivot build writes it; make one with: pivot build sokoban --out runs/first"
        )
    chosen = sorted(present) if ALL in configs else list(configs)
    unknown = [env for env in chosen if env not in present]
    if unknown:
        raise TrainingError(f"{source} has no config {unknown[0]!r}; it has: {', '.join(sorted(present))}, {ALL}")
    by_side = {side: [(name, env) for env in chosen for name in present[env].get(side, [])] for side in SIDES}
    return DatasetFiles(storage, by_side, manifest)


def _fetched(source: str, configs: Sequence[str]) -> Path:
    """Return the folder in which the hub's library keeps a dataset's files, after it has fetched what is new."""
    # Imported here: the library takes a second.
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    patterns = [f"{'*' if config == ALL else config}/*.parquet" for config in configs]
    try:
        folder = snapshot_download(source, repo_type="dataset", allow_patterns=patterns, ignore_patterns="*_episodes/*")
    except LocalEntryNotFoundError as error:
        raise TrainingError(
            f"{source} is no folder here, and the hub cannot be reached or is not to be (HF_HUB_OFFLINE), nor is a "
            "dataset of that name kept from earlier; expected a store, a dataset folder, or a hub id"
        ) from error
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise TrainingError(
            f"{source} is no folder here, and the hub gives no such dataset ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}); expected a store, a dataset folder, or a hub id; for a private one, log "
            "in with: hf auth login"
        ) from error
    if not Path(folder).exists():
        raise TrainingError(
            f"the dataset {source} of the hub holds no file {' or '.join(patterns)}; expected the dataset folder of a "
            "store as it is (hf upload user/name STORE/dataset --repo-type dataset), and one of its configs"
        )
    return Path(folder)


def rows_of(storage: Storage, name: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with its place for messages; pictures stay encoded.

    Raises:
        TrainingError: the file is torn, or has other columns.
    """
    address = storage.address(name)
    schema = TableSchema(DATASET.name, DATASET.doc, tuple(DATASET.only(*columns)))
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            check_columns(address, schema, file.schema_arrow)
            number = 0
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                for row in batch.to_pylist():
                    yield f"{address}, row {number}", row
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise TrainingError(f"{address} cannot be read as Parquet ({error}); {REBUILD}") from error
    except StoreError as error:
        raise TrainingError(str(error)) from error
