"""Receipts: proof that a shard's stage is done, and what resume reads."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .files import FileRecord, write_json_atomic


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a shard's stage is done: what it was made from, and the files it left."""

    inputs: str
    """Digest of everything that decides the files' bytes."""
    files: dict[str, FileRecord]
    facts: dict[str, Any]
    """Small results that later stages need without reading the shard (counts, owed episodes)."""

    def write(self, root: Path, relative: str) -> None:
        """Store the receipt; from now on the shard counts as done."""
        write_json_atomic(root, relative, asdict(self))

    @classmethod
    def read(cls, root: Path, relative: str) -> "Receipt | None":
        """Read a receipt; None when there is none or it is unreadable (the shard is then made again)."""
        try:
            raw = json.loads((root / relative).read_text(encoding="utf-8"))
            files = {path: FileRecord(**entry) for path, entry in raw["files"].items()}
            return cls(raw["inputs"], files, dict(raw["facts"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def holds(self, root: Path, inputs: str) -> bool:
        """Whether the shard was made from ``inputs`` and its files are still there in full length."""
        return self.inputs == inputs and all(_has_size(root / path, entry.bytes) for path, entry in self.files.items())


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
