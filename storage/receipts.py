"""Receipts: proof that a shard's stage is done, and what resume reads."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import StoreError
from .base import FileRecord, Storage


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a shard's stage is done: what it was made from, and the files it left."""

    inputs: str
    """Digest of everything that decides the files' bytes."""
    files: dict[str, FileRecord]
    facts: dict[str, Any]
    """Small results that later stages need without reading the shard (counts, owed episodes)."""
    changed: dict[str, str] = field(default_factory=dict, compare=False)
    """When each file was written, as ``Stat.changed`` says: one that still says so is not hashed again."""

    def write(self, storage: Storage, name: str) -> None:
        """Store the receipt; from now on the shard counts as done."""
        changed = {path: status.changed for path in self.files if (status := storage.glance(path)) is not None}
        storage.write_json(name, asdict(self) | {"changed": changed})

    @classmethod
    def read(cls, storage: Storage, name: str) -> "Receipt | None":
        """Read a receipt; None when there is none or it is unreadable (the shard is then made again)."""
        try:
            raw = storage.read_json(name)
            files = {path: FileRecord.decode(entry) for path, entry in raw["files"].items()}
            return cls(raw["inputs"], files, dict(raw["facts"]), dict(raw.get("changed", {})))
        except (StoreError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def holds(self, storage: Storage, inputs: str) -> bool:
        """Whether the shard was made from ``inputs`` and its files are still what was written."""
        return self.inputs == inputs and all(
            is_intact(storage, path, record, self.changed.get(path)) for path, record in self.files.items()
        )


def is_intact(storage: Storage, name: str, record: FileRecord, changed: str | None) -> bool:
    """Whether an object is what ``record`` says; it is read only if it may have been written after ``changed``.

    A length tells most damage, and hashing a whole store (about 1 GB/s) is worth it only where something was touched.
    """
    status = storage.glance(name)
    if status is not None and (status.bytes, status.changed) == (record.bytes, changed):
        return True
    status = storage.stat(name)
    if status is None or status.bytes != record.bytes:
        return False
    return status.changed == changed or storage.record(name) == record
