"""Replace a store's dataset, config and manifest in one step that survives a kill at any moment.

The new files are prepared beside the old ones; a journal written last makes the step binding. From then on every writer
that opens the store finishes the step first, so the outcome is the old store or the new one, never a mixture. Readers
open whole versions throughout: the files of both are there until the last one that names the old version is replaced.
"""

import contextlib
import ctypes
import errno
import os
import shutil
from pathlib import Path

from ..datasets.store import DATABASE, DATASET_FOLDER, MANIFEST, RUN
from ..storage.files import read_json, storage_error, sync_folder, write_json_atomic
from ..storage.locks import exclusive

COMMIT = ".commit"
JOURNAL = f"{COMMIT}/journal.json"
REPLACED = (RUN, DATABASE, MANIFEST)
"""Files that change with the dataset, in the order in which they are moved."""

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def bind(root: Path, dataset: str, obsolete: list[str]) -> None:
    """Write the journal: from now on the step will be finished, by us or by the next writer.

    Args:
        root: the store.
        dataset: folder of the new dataset, relative to ``root``.
        obsolete: files and folders to remove afterwards, relative to ``root``.
    """
    # A folder keeps its inode when it is renamed: that tells, after a kill, whether the exchange has happened.
    inode = (root / dataset).stat().st_ino
    write_json_atomic(root, JOURNAL, {"dataset": dataset, "inode": inode, "obsolete": obsolete})


def roll_forward(root: Path) -> bool:
    """Finish a step that was bound but not completed; return whether there was one."""
    if not (root / JOURNAL).is_file():
        shutil.rmtree(root / COMMIT, ignore_errors=True)
        return False
    journal = read_json(root / JOURNAL)
    try:
        _swap_dataset(root, root / journal["dataset"], journal["inode"])
        for name in REPLACED:
            staged = root / COMMIT / name
            if staged.exists():
                staged.replace(root / name)
        sync_folder(root)
        for name in journal["obsolete"]:
            path = root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        shutil.rmtree(root / COMMIT)
    except OSError as error:
        raise storage_error("replace the dataset of", root, error) from error
    return True


def settle(root: Path) -> None:
    """Finish a bound step that a kill interrupted, for a reader that compares files with the manifest.

    Other readers need not: what they open is the old version or the new one at any moment.

    Raises:
        StoreError: a run is writing the store right now, or the step cannot be finished.
    """
    if (root / JOURNAL).is_file():
        with exclusive(root):
            roll_forward(root)


def _swap_dataset(root: Path, new: Path, inode: int) -> None:
    """Put ``new`` in the dataset's place and remove the old one; harmless when it was done before."""
    current = root / DATASET_FOLDER
    if not current.exists():
        new.rename(current)
    elif current.stat().st_ino != inode:
        _exchange(current, new)
    sync_folder(root)
    for old in (new, _aside(current)):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(old)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-old")


def _exchange(first: Path, second: Path) -> None:
    """Exchange two folders, atomically where the system can (Linux ``renameat2``)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        done = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
        if done == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(first))
    aside = _aside(first)
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
