"""Durable storage: whatever outlives a process is written, listed, locked and replaced through here.

:func:`open_storage` alone decides what stands behind an address, so that one other backend serves every room, and a
test that puts faults behind an address reaches every operation on it.
"""

from .address import Address, FollowedPath, Url, allow_links, parse_address
from .base import FileRecord, Stat, Storage
from .local import LocalStorage, write_file

__all__ = [
    "Address",
    "FileRecord",
    "FollowedPath",
    "LocalStorage",
    "Stat",
    "Storage",
    "Url",
    "allow_links",
    "open_storage",
    "parse_address",
    "write_file",
]


def open_storage(root: Address) -> Storage:
    """Return the storage whose objects lie under ``root``; nothing is touched yet."""
    if isinstance(root, Url):
        from .objects import ObjectStorage  # noqa: PLC0415 - of an extra of the package

        return ObjectStorage(root)
    return LocalStorage(root)
