"""Durable writing: a file is either the old one or the new one, whole; a store has one writer at a time.

Every file is written under ``DIR/.tmp``, flushed to disk, moved over its final name, and the folder is flushed, so a
kill or a power cut at any moment leaves no torn file under a final name. ``manifest.json`` is written last: a store
that has one is complete.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import StoreError

TEMPORARY = ".tmp"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the manifest knows of a file."""

    sha256: str
    bytes: int


class _HashingWriter:
    """A binary sink that hashes what it writes, so that no file is read back for its digest."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += view.nbytes
        return self._raw.write(view)

    def flush(self) -> None:
        self._raw.flush()

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        """The file is closed by its opener, after it has been flushed to disk."""

    @property
    def closed(self) -> bool:
        return self._raw.closed

    def record(self) -> FileRecord:
        return FileRecord(self._hash.hexdigest(), self.size)


def storage_error(action: str, path: Path, error: OSError) -> StoreError:
    """Describe a failed file operation in one sentence, with the fix."""
    fixes = {
        28: "free some space and run the same command again; finished shards are kept",
        122: "raise the quota or free some space and run the same command again; finished shards are kept",
        30: "choose a folder on a writable filesystem with --out",
        13: "choose a folder you may write to with --out, or change its permissions",
        1: "choose a folder you may write to with --out, or change its permissions",
        20: "a file stands where a folder is needed; remove it or choose another --out",
        17: "a file stands where a folder is needed; remove it or choose another --out",
    }
    fix = fixes.get(error.errno or 0, "check the disk and run the same command again; finished shards are kept")
    return StoreError(f"cannot {action} {path}: {error.strerror or error}; {fix}")


def write_atomic(root: Path, relative: str, fill: Callable[[Any], object], *, settle_folder: bool = True) -> FileRecord:
    """Write ``root/relative`` durably; ``fill`` receives a binary sink.

    Without ``settle_folder`` the caller flushes the folder, once for several files.

    Raises:
        StoreError: the disk is full, read-only or failing; the old file, if any, is untouched.
    """
    target = root / relative
    temporary = root / TEMPORARY / f"{relative.replace('/', '-')}.{os.getpid()}"
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        _make_folder(target.parent)
        with temporary.open("wb") as raw:
            sink = _HashingWriter(raw)
            fill(sink)
            raw.flush()
            os.fsync(raw.fileno())
        temporary.replace(target)
        if settle_folder:
            sync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise storage_error("write", target, error) from error
        raise
    return sink.record()


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and flush the entries that name them."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def write_text_atomic(root: Path, relative: str, text: str) -> FileRecord:
    """Write a UTF-8 text file durably."""
    return write_atomic(root, relative, lambda sink: sink.write(text.encode()))


def write_json_atomic(root: Path, relative: str, value: Any) -> FileRecord:
    """Write indented JSON durably."""
    return write_text_atomic(root, relative, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_record(path: Path) -> FileRecord:
    """Hash a file as it is on disk."""
    hasher = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return FileRecord(hasher.hexdigest(), size)


def read_json(path: Path) -> Any:
    """Read a JSON file of a store.

    Raises:
        StoreError: it is missing, unreadable or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise storage_error("read", path, error) from error
    except ValueError as error:
        raise StoreError(
            f"{path} is not valid JSON ({error}); restore it from a copy or build the store again"
        ) from error
