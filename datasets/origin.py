"""What a store that is made from another one says of that: by which command, and from which files."""

from ..errors import StoreError
from ..storage import Storage

ORIGIN = ".receipts/origin.json"
"""Written before anything else, and kept: the same command again goes on, or says that all is done."""

MANIFEST = "manifest.json"


def refuse_unfinished_copy(storage: Storage) -> None:
    """Refuse a store that is being made from another one: what is missing there is copied, not made.

    Raises:
        StoreError: it is one; the message names the command that goes on with it.
    """
    if storage.stat(MANIFEST) is None and storage.stat(ORIGIN) is not None:
        origin = storage.read_json(ORIGIN)
        command = origin.get("command") if isinstance(origin, dict) else None
        if command not in ("compact", "migrate"):
            raise StoreError(
                f"{storage.address(ORIGIN)} does not name the command that began this store; expected compact or "
                "migrate: remove the folder and start again"
            )
        raise StoreError(
            f"{storage.address()} is the unfinished store of `pivot {command}`; finish it with the same command: "
            f"pivot {command} DIR --out {storage.address()}"
        )
