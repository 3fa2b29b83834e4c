"""Names in the folder of a store, its manifest, and messages about a folder that is not a store."""

import os
import re
from contextlib import suppress
from datetime import date
from itertools import islice
from pathlib import Path

from ...core.errors import NoStoreError, StoreError
from ...core.storage import Address, FileRecord, Storage, open_storage

RUN = "run.json"
DATASET_FOLDER = "dataset"
MANIFEST = "manifest.json"
_MARK = re.compile(r"\.removed-(\d{4}-\d\d-\d\d)\.json", re.ASCII)
"""The former manifest of a store that will be removed, with the day on which a prune marked it."""
ORIGIN = ".receipts/origin.json"
"""Record of a merge: the source stores, written first, so that only a merge resumes the new store."""
_NAMED = 3
"""Stores that a message names."""


def refuse_inside_store(root: Address) -> None:
    """Refuse a local folder for a new store that is inside another store, whose verification would then fail.

    Raises:
        NoStoreError: the folder is in a store; the message names the other store.
    """
    outer = enclosing_store(root)
    if outer is not None and open_storage(root).stat(RUN) is None:
        raise NoStoreError(f"{root} is in the store {outer}, expected a folder outside of it; choose another --out")


def no_store(storage: Storage, root: Address) -> NoStoreError:
    """Describe a folder without ``run.json``, and what to name or do instead.

    Raises:
        StoreError: it is a file, or may not be read.
    """
    there = [name for name in storage.entries() if not name.startswith(".")]
    outer, below = enclosing_store(root), [root / name for name in there if isinstance(root, Path)]
    inner = list(islice(filter(is_store, below), _NAMED))
    if outer is not None:
        fix = f"it is in the store {outer}: name that one"
    elif inner:
        fix = f"it holds stores: name one of them, such as {', '.join(map(str, inner))}"
    elif there:
        fix = "name the folder of a store"
    else:
        fix = f"make one with: pivot build sokoban --out {root}"
    what = f"holds no {RUN}" if storage.exists() else "does not exist"
    return NoStoreError(f"{root} {what}, so it is not a PIVOT store; {fix}")


def enclosing_store(root: Address) -> Path | None:
    """Return the innermost store that a local folder is in."""
    if not isinstance(root, Path):
        return None
    return next((each for each in Path(os.path.realpath(root)).parents if is_store(each)), None)


def marks_in(storage: Storage) -> dict[str, date]:
    """Return the days of the marks in a store by their names; a build that resumes the store removes them."""
    days: dict[str, date] = {}
    for name in storage.entries():
        if match := _MARK.fullmatch(name):
            with suppress(ValueError):
                days[name] = date.fromisoformat(match[1])
    return days


def is_store(folder: Address) -> bool:
    """Return whether a folder has the ``run.json`` of a store; the one of a training run has no run id."""
    try:
        content = open_storage(folder).read_json(RUN)
    except StoreError:
        return False
    return isinstance(content, dict) and "run_id" in content


def refuse_while_written(root: Address) -> None:
    """Refuse a store that a run is writing: its files differ from its manifest and from each other.

    Raises:
        StoreError: a run holds its lock.
    """
    writer = open_storage(root).writer()
    if writer is not None:
        raise StoreError(
            f"{root} is being written by another run (process {writer}), so there is nothing to verify yet; wait for "
            "its end"
        )


def refuse_unfinished(storage: Storage) -> None:
    """Refuse a store without a manifest, whose build did not finish or which a prune marked.

    Raises:
        StoreError: it has none; the message says how it gets one.
    """
    if storage.stat(MANIFEST) is not None:
        return
    root = storage.address()
    if marks := marks_in(storage):
        raise NoStoreError(
            f"{root} is marked for removal by `pivot prune`; to keep it, rename {max(marks)} to {MANIFEST}"
        )
    refuse_unfinished_merge(storage)
    raise NoStoreError(
        f"{root} holds no {MANIFEST}: its build did not finish; "
        f"finish it with: pivot build --config {storage.address(RUN)} --out {root}"
    )


def refuse_unfinished_merge(storage: Storage) -> None:
    """Refuse an unfinished store of a merge: a build must not complete it.

    Raises:
        StoreError: the store is one; the message names the command that finishes it.
    """
    if storage.stat(MANIFEST) is None and storage.stat(ORIGIN) is not None:
        raise StoreError(
            f"{storage.address()} is the unfinished store of `pivot merge`; finish it with the same command: "
            f"pivot merge STORE... --out {storage.address()}"
        )


def read_manifest(storage: Storage) -> dict[str, FileRecord]:
    """Read the manifest of a store.

    Raises:
        StoreError: it is missing or malformed.
    """
    raw = storage.read_json(MANIFEST)
    try:
        return {name: FileRecord.decode(entry) for name, entry in raw["files"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{storage.address(MANIFEST)} is not a manifest "
            "(expected {'files': {path: {'sha256', 'bytes'}}}); run the same build again to write it"
        ) from error
