"""Check the files of a store: files that its run does not make are problems if a reader's pattern matches them.

DuckDB and polars read ``**/*.parquet`` in hidden files and folders, too, and pandas reads every file of a folder, so a
file that nobody proved would be read with the others. ``pivot verify`` therefore refuses in the folders of tables and
of the dataset every file that the run does not make, and elsewhere in the store every Parquet file.
"""

import os
import re
from pathlib import Path

from ...core.errors import ForbiddenError, StoreError
from ...core.storage import Storage
from ...core.storage.commit import COMMIT
from ..export.card import CARD, PICTURE
from ..store.config import Shard
from ..store.dataset_rows import dataset_file
from ..store.schema import CALLS, DATASET, DATASET_EPISODES, LABELS, PROMPTS, STORE_TABLES
from ..store.split import SIDES
from ..store.store import AUDIT, DATASET_FOLDER, MANIFEST, RUN, Store, data_files

PROBE_FOLDER = "probe"
"""The files of a rollback probe, which ``insight.probe.proof`` compares with the run."""


def file_problems(store: Store) -> list[str]:
    """Compare the manifest, the files on disk, and the files that the run makes."""
    manifest = store.manifest()
    made = made_files(store)
    problems = []
    for name, record in manifest.items():
        status = store.storage.stat(name)
        if status is None:
            problems.append(f"{name}: the file is missing")
            continue
        if status.bytes != record.bytes:
            problems.append(f"{name}: its length is not that of {MANIFEST}")
            continue
        try:
            actual = store.storage.record(name)
        except ForbiddenError:
            raise
        except StoreError as error:
            problems.append(f"{name}: {error}")
            continue
        if actual != record:
            problems.append(f"{name}: its sha256 is not that of {MANIFEST}")
    present = {*data_files(store), RUN}
    missing = f"the file is not in {MANIFEST}"
    problems += [_unlisted(name, store.config.label_version, missing) for name in sorted(present - manifest.keys())]
    lost = sorted(made - manifest.keys() - present)
    problems += [f"{name}: the file is missing, and {MANIFEST} does not list it" for name in lost]
    allowed = made | older_label_files(store) | {f"{DATASET_FOLDER}/{PICTURE}"}
    listed = {name for name in manifest if not name.startswith(f"{PROBE_FOLDER}/")}
    problems += [f"{name}: a file that the run does not make" for name in sorted(listed - allowed)]
    return problems + _stray_problems(store, present | listed)


def made_files(store: Store) -> set[str]:
    """Return the relative paths of every file that the run makes and the manifest lists.

    Whether a shard makes files of labels and of the dataset depends on its rows, which are compared one by one.
    """
    files = {RUN, f"{DATASET_FOLDER}/{CARD}", *((AUDIT,) if store.is_imported else ())}
    for schema in (*STORE_TABLES, LABELS):
        files.update(store.files(schema))
    for shard in store.config.shards():
        files.update(store.rollout_files(shard))
        files.update(dataset_files(shard) & store.manifest().keys())
    return files


def dataset_files(shard: Shard) -> set[str]:
    """Return the relative paths of all files that a shard may have in the dataset."""
    schemas = (DATASET, DATASET_EPISODES)
    return {dataset_file(DATASET_FOLDER, schema, shard, side) for schema in schemas for side in SIDES}


def older_label_files(store: Store) -> set[str]:
    """Return the relative paths of files that hold labels of older versions, which a store may keep."""
    return {
        name
        for version in store.older_versions
        for shard in store.config.shards()
        for name in (
            f"{store.labels_folder(version)}/{shard.file}",
            *(f"{schema.name}/{shard.stem}-labels-v{version}.parquet" for schema in (PROMPTS, CALLS)),
        )
    }


_OF_LABELS = re.compile(rf"(?:labels/v(\d+)|\.{DATASET_FOLDER}-v(\d+))/.*|(?:prompts|calls)/.*-labels-v(\d+)\.parquet")
"""Files of one label version: its labels, its staged dataset, its prompts and requests."""


def _unlisted(name: str, version: int, otherwise: str) -> str:
    """Describe a file that the manifest does not list; ``otherwise`` where no relabelling explains it."""
    match = _OF_LABELS.fullmatch(name)
    if match and int(next(filter(None, match.groups()))) == version + 1:
        return (
            f"{name}: a file of label version {version + 1}, left by a relabelling that did not finish; run the same "
            "pivot relabel again, or remove the file"
        )
    return f"{name}: {otherwise}"


def _stray_problems(store: Store, examined: set[str]) -> list[str]:
    """Describe the Parquet files outside of the folders of tables."""
    stray = f"a Parquet file outside of the tables, which readers of {store.root} may find; remove it"
    problems = []
    for name in sorted(_all_files(store.storage) - examined):
        folder = name.partition("/")[0]
        if folder == PROBE_FOLDER:
            continue
        if folder == COMMIT:
            problems.append(f"{name}: a step that a writer left unfinished; run the command again that was interrupted")
        elif name.lower().endswith(".parquet"):
            problems.append(_unlisted(name, store.config.label_version, stray))
    return problems


def _all_files(storage: Storage) -> set[str]:
    """Return the names of all files of a store, temporary ones included, which a listing leaves out."""
    names = set(storage.listing())
    if storage.remote:
        return names
    root = storage.local_path()
    paths = (Path(folder) / file for folder, _, files in os.walk(root) for file in files)
    return names | {path.relative_to(root).as_posix() for path in paths}
