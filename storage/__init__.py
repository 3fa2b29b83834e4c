"""Durable storage: whatever outlives a process is written, listed, locked and replaced through here.

:func:`open_storage` alone decides what stands behind an address, so that one other backend serves every room, and a
test that puts faults behind an address reaches every operation on it.
"""

from pathlib import Path

from .base import FileRecord, Stat, Storage
from .local import LocalStorage, write_file

__all__ = ["FileRecord", "LocalStorage", "Stat", "Storage", "open_storage", "write_file"]


def open_storage(root: Path) -> Storage:
    """Return the storage whose objects lie under ``root``; nothing is touched yet."""
    return LocalStorage(root)
