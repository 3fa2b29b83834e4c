"""The origin of a store that is made from another one: the command, and the files of the source."""

from ..errors import StoreError
from ..storage import Storage

ORIGIN = ".receipts/origin.json"
"""Written first, and kept, so that the same command resumes, or reports that all is done."""

MERGED = "merged"
"""Field of the origin: for each part, the numbers of the parts of the source that became it."""

MANIFEST = "manifest.json"


def merged_parts(storage: Storage) -> list[list[int]]:
    """Return, for each part that a merge made, the numbers of its parts of before; empty if nothing was merged.

    Raises:
        StoreError: the record cannot be read.
    """
    origin = storage.read_json(ORIGIN) if storage.stat(ORIGIN) is not None else {}
    merged = origin.get(MERGED, []) if isinstance(origin, dict) else None
    if not isinstance(merged, list) or not all(isinstance(each, list) for each in merged):
        raise StoreError(
            f"{storage.address(ORIGIN)}: found other merged parts than lists of part numbers; restore it from a copy"
        )
    return merged


def refuse_unfinished_copy(storage: Storage) -> None:
    """Refuse an unfinished store that is made from another one: a build must not complete it.

    Raises:
        StoreError: it is one; the message names the command that finishes it.
    """
    if storage.stat(MANIFEST) is None and storage.stat(ORIGIN) is not None:
        origin = storage.read_json(ORIGIN)
        command = origin.get("command") if isinstance(origin, dict) else None
        if command != "compact":
            raise StoreError(
                f"{storage.address(ORIGIN)} does not name the command that began this store; expected compact: "
                "remove the folder and start again"
            )
        raise StoreError(
            f"{storage.address()} is the unfinished store of `pivot {command}`; finish it with the same command: "
            f"pivot {command} STORE --out {storage.address()}"
        )
