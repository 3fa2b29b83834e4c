"""The record of a merge: the stores whose rows a store gets, written first so that only a merge resumes it."""

from ...core.errors import StoreError
from ...core.storage import Storage

ORIGIN = ".receipts/origin.json"
MANIFEST = "manifest.json"


def refuse_unfinished_merge(storage: Storage) -> None:
    """Refuse an unfinished store that is made from others: a build must not complete it.

    Raises:
        StoreError: the store is one; the message names the command that finishes it.
    """
    if storage.stat(MANIFEST) is None and storage.stat(ORIGIN) is not None:
        raise StoreError(
            f"{storage.address()} is the unfinished store of `pivot merge`; finish it with the same command: "
            f"pivot merge STORE... --out {storage.address()}"
        )
