"""Verify the files of a store: the manifest, ``run.json``, and the card with its picture.

DuckDB and polars read ``**/*.parquet`` in hidden files and folders, too, and pandas reads every file of a folder, so a
file that nobody proved would be read with the others. ``pivot verify`` therefore refuses in the folders of tables and
of the dataset every file that the run does not make, and elsewhere in the store every Parquet file.
"""

import itertools
import os
import re
from pathlib import Path
from typing import Any

from ...core.errors import ForbiddenError, StoreError
from ...core.storage import Storage
from ...core.storage.commit import COMMIT
from ..export.card import CARD, PICTURE, card_text, example_picture
from ..store.dataset_rows import dataset_file
from ..store.schema import DATASET, DATASET_EPISODES, LABELS, STORE_TABLES
from ..store.splits import SIDES
from ..store.store import AUDIT, DATASET_FOLDER, MANIFEST, PROBE_FOLDER, RUN, Store, data_files
from .compare import contrast, picture_problem

# The manifest


def file_problems(store: Store) -> list[str]:
    """Compare the manifest, the files on disk, and the files that the run makes."""
    return [*_digest_problems(store), *_name_problems(store)]


def _digest_problems(store: Store) -> list[str]:
    problems = []
    for name, record in store.manifest().items():
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
    return problems


def _name_problems(store: Store) -> list[str]:
    manifest = store.manifest()
    # Whether a shard has label and dataset files depends on its rows, which are compared one by one.
    made = {RUN, f"{DATASET_FOLDER}/{CARD}", *((AUDIT,) if store.is_imported else ())}
    possible = {f"{DATASET_FOLDER}/{PICTURE}"}
    for schema in (*STORE_TABLES, LABELS):
        made.update(store.files(schema))
    for shard in store.config.shards():
        made.update(store.rollout_files(shard))
        exported = itertools.product((DATASET, DATASET_EPISODES), SIDES)
        possible |= {dataset_file(DATASET_FOLDER, schema, shard, side) for schema, side in exported}
    present = {*data_files(store), RUN}
    missing = f"the file is not in {MANIFEST}"
    problems = [_unlisted(name, store.config.label_version, missing) for name in sorted(present - manifest.keys())]
    lost = sorted(made - manifest.keys() - present)
    problems += [f"{name}: the file is missing, and {MANIFEST} does not list it" for name in lost]
    listed = {name for name in manifest if not name.startswith(f"{PROBE_FOLDER}/")}
    problems += [f"{name}: a file that the run does not make" for name in sorted(listed - made - possible)]
    stray = f"a Parquet file outside of the tables, which readers of {store.root} may find; remove it"
    for name in sorted(_all_files(store.storage) - present - listed):
        folder = name.partition("/")[0]
        if folder == COMMIT:
            problems.append(f"{name}: a step that a writer left unfinished; run the command again that was interrupted")
        elif folder == PROBE_FOLDER:
            if name not in manifest:
                problems.append(f"{name}: {missing}: a probe did not finish; run: pivot probe {store.root}")
        elif name.lower().endswith(".parquet"):
            problems.append(_unlisted(name, store.config.label_version, stray))
    return problems


_OF_LABELS = re.compile(rf"(?:labels/v(\d+)|\.{DATASET_FOLDER}-v(\d+))/.*|(?:prompts|calls)/.*-labels-v(\d+)\.parquet")
"""Files of one label version: its labels, its staged dataset, its prompts and requests."""


def _unlisted(name: str, version: int, otherwise: str) -> str:
    """Describe a file that the manifest does not list; ``otherwise`` is the text if no relabelling explains it."""
    match = _OF_LABELS.fullmatch(name)
    if match and int(next(filter(None, match.groups()))) == version + 1:
        return (
            f"{name}: a file of label version {version + 1}, left by a relabelling that did not finish; run the same "
            "pivot relabel again, or remove the file"
        )
    return f"{name}: {otherwise}"


def _all_files(storage: Storage) -> set[str]:
    """Return the names of all files of a store, including temporary ones, which listings leave out."""
    names = set(storage.listing())
    if storage.remote:
        return names
    root = storage.local_path()
    paths = (Path(folder) / file for folder, _, files in os.walk(root) for file in files)
    return names | {path.relative_to(root).as_posix() for path in paths}


# run.json


def run_problems(store: Store, run_id: str) -> list[str]:
    """Check that ``run.json`` has exactly the content that a build writes; ``run_id`` is the id in its rows.

    Versions of packages cannot be derived, so nothing rests on them; which packages are named can.
    """
    raw, expected = store.storage.read_json(RUN), store.run_record(run_id)
    versions = raw.get("versions")
    if isinstance(versions, dict) and versions.keys() == expected["versions"].keys():
        texts: dict[str, Any] = versions
        if all(isinstance(each, str) for each in texts.values()):
            expected["versions"] = texts
    names = sorted(raw.keys() | expected.keys())
    absent = object()
    return [
        f"{RUN}: {contrast(name, raw.get(name, 'nothing'), expected.get(name, 'nothing'))}"
        for name in names
        if raw.get(name, absent) != expected.get(name, absent)
    ]


# The card


def card_problems(store: Store) -> list[str]:
    """Derive the card and its picture from the tables and compare."""
    storage, card, shown = store.storage, f"{DATASET_FOLDER}/{CARD}", f"{DATASET_FOLDER}/{PICTURE}"
    try:
        picture = example_picture(store)
        text = card_text(store, DATASET_FOLDER, storage.read_json(RUN), store.manifest(), picture is not None)
        problems = []
        if storage.read_bytes(card) != text.encode():
            problems.append(f"{card}: its text is not the one that the tables and {RUN} give")
        stored = None if storage.stat(shown) is None else storage.read_bytes(shown)
        if stored == picture:
            return problems
        if stored is None or picture is None:
            return [*problems, f"{shown}: it is not the picture that the tables give"]
        strange = picture_problem(stored, picture)
        return problems if strange is None else [*problems, f"{shown}: {strange}"]
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - tables that contradict each other break what is counted in any way
        return [f"{card}: it cannot be recomputed ({type(error).__name__}: {error})"]
