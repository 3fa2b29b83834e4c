"""Receipts: one JSON file per shard and stage, written when the stage is done; a resumed run reads them."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..errors import StoreError
from .base import FileRecord, Storage


@dataclass(frozen=True, slots=True)
class Receipt:
    """Record of a finished stage of a shard: a digest of its inputs, and the files that it wrote."""

    inputs: str
    """Digest of everything that determines the bytes of the files."""
    files: dict[str, FileRecord]
    facts: dict[str, Any]
    """Small results that later stages need without reading the shard (counts, pending episodes)."""
    changed: dict[str, str] = field(default_factory=dict, compare=False)
    """``Stat.changed`` of each file when it was written: an unchanged file is not hashed again."""

    def write(self, storage: Storage, name: str) -> None:
        """Store the receipt; from now on the shard counts as done."""
        changed = {path: status.changed for path in self.files if (status := storage.cached_stat(path)) is not None}
        storage.write_json(name, asdict(self) | {"changed": changed})

    @classmethod
    def read(cls, storage: Storage, name: str) -> "Receipt | None":
        """Read a receipt; None if it is missing or invalid (the stage is then repeated)."""
        try:
            raw = storage.read_json(name)
            files = {path: FileRecord.decode(entry) for path, entry in raw["files"].items()}
            return cls(raw["inputs"], files, dict(raw["facts"]), dict(raw.get("changed", {})))
        except (StoreError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def holds(self, storage: Storage, inputs: str) -> bool:
        """Whether the stage had these inputs and its files are unchanged."""
        return self.inputs == inputs and all(
            is_intact(storage, path, record, self.changed.get(path)) for path, record in self.files.items()
        )


def is_intact(storage: Storage, name: str, record: FileRecord, changed: str | None) -> bool:
    """Whether an object has the digest of ``record``; it is hashed only if it was written after ``changed``.

    The length shows most damage, and hashing a whole store (about 1 GB/s) is slow.
    """
    status = storage.cached_stat(name)
    if status is not None and (status.bytes, status.changed) == (record.bytes, changed):
        return True
    status = storage.stat(name)
    if status is None or status.bytes != record.bytes:
        return False
    return status.changed == changed or storage.record(name) == record
