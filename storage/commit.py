"""Replace a folder and some objects beside it in one step that survives a kill at any moment.

The new ones are prepared beside the old ones; a journal written last makes the step binding. From then on every writer
that opens the storage finishes the step first, so the outcome is all of the old or all of the new, never a mixture.
"""

from collections.abc import Sequence

from .base import Storage

COMMIT = ".commit"
"""Folder in which the objects of a step are prepared, under the names that they will have."""

JOURNAL = f"{COMMIT}/journal.json"


def bind(storage: Storage, folder: tuple[str, str], objects: Sequence[str], obsolete: Sequence[str]) -> None:
    """Write the journal: from now on the step will be finished, by us or by the next writer.

    Args:
        storage: where.
        folder: the prepared folder, and the one in whose place it goes.
        objects: prepared under ``COMMIT``, in the order in which they are moved.
        obsolete: objects and folders to remove afterwards.
    """
    source, target = folder
    journal = {"source": source, "target": target, "mark": storage.mark(source)}
    storage.write_json(JOURNAL, journal | {"objects": list(objects), "obsolete": list(obsolete)})


def roll_forward(storage: Storage) -> bool:
    """Finish a step that was bound but not completed; return whether there was one."""
    if storage.stat(JOURNAL) is None:
        storage.delete(COMMIT)
        return False
    journal = storage.read_json(JOURNAL)
    storage.replace_folder(journal["source"], journal["target"], journal["mark"])
    for name in journal["objects"]:
        storage.replace(f"{COMMIT}/{name}", name)
    storage.flush(journal["objects"])
    for name in journal["obsolete"]:
        storage.delete(name)
    storage.delete(COMMIT)
    return True


def settle(storage: Storage) -> None:
    """Finish a bound step that a kill interrupted, for a reader that compares files with the manifest.

    Other readers need not: what they open is the old version or the new one at any moment.

    Raises:
        StoreError: a run is writing right now, or the step cannot be finished.
    """
    if storage.stat(JOURNAL) is not None:
        with storage.lock():
            roll_forward(storage)
