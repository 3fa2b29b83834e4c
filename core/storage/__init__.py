"""Durable storage: every file that outlives a process is written, listed, locked and replaced through this package.

:func:`open_storage` is the only place that chooses a backend for an address, so a new backend works everywhere, and a
test that injects faults reaches every operation.
"""

from .. import plugins
from .base import TEMPORARY, Address, FileRecord, Stat, Storage, Url, parse_address
from .local import LocalStorage, write_file

__all__ = [
    "TEMPORARY",
    "Address",
    "FileRecord",
    "LocalStorage",
    "Stat",
    "Storage",
    "Url",
    "open_storage",
    "parse_address",
    "write_file",
]


def open_storage(root: Address) -> Storage:
    """Return the storage of the objects below ``root``; nothing is read or written yet.

    Raises:
        PluginError: the storage of this scheme cannot be used.
    """
    return plugins.load("storages", root.scheme)(root) if isinstance(root, Url) else LocalStorage(root)
