"""What a storage must be able to do: whole objects under one root, each the old one or the new one, never torn.

Names are relative to the root, with ``/`` between their parts; a *folder* is whatever shares such a beginning. A
backend needs whole-object writes, listing by folder, deletion and one writer's lock: a local folder has them, an object
store too. Nothing is moved but by ``replace`` and ``replace_folder``, of which :mod:`.commit` makes one step.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from ..errors import ReadOnlyError, StoreError
from .address import Address

WRITERS = 4
"""Objects that are written at once: one is encoded while others wait for the disk."""

MAX_JSON_BYTES = 32 << 20
"""Longest JSON object that is parsed: a manifest of 200,000 files. Parsed, it takes up to 25 times as much memory."""

_CHUNK = 1 << 20

Fill = Callable[[Any], object]
"""Writes the content of an object into the binary sink that it is given."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the manifest knows of an object."""

    sha256: str
    bytes: int

    @classmethod
    def decode(cls, raw: Any) -> "FileRecord":
        """Read a record as JSON holds it.

        Raises:
            TypeError: it is something else.
        """
        record = cls(**raw)
        if not isinstance(record.sha256, str) or type(record.bytes) is not int:
            raise TypeError("expected a text 'sha256' and a whole number 'bytes'")
        return record


@dataclass(frozen=True, slots=True)
class Stat:
    """What a listing tells about an object, without reading it."""

    bytes: int
    changed: str
    """Another text after every write: the time of the last change of a local file, the tag of a stored object."""


class Storage(ABC):
    """Whole objects under one root. What fails raises StoreError, which names the object and what to do next."""

    remote: ClassVar[bool] = False
    """Whether a look at an object is a request to a server, and no object can be torn."""

    # Where objects lie

    @abstractmethod
    def address(self, name: str = "") -> str:
        """Where an object or the root lies: for messages, and for readers such as polars that open addresses."""

    @abstractmethod
    def local_path(self, name: str = "") -> Path:
        """The same as a path of this machine, for what works on local files alone, such as a database file.

        Raises:
            StoreError: the storage is no local folder.
        """

    @abstractmethod
    def check_contents(self) -> None:
        """Refuse whatever is no object of this storage alone, such as a link; a reader calls it once, first of all.

        Raises:
            StoreError: there is such a thing; the message names it.
        """

    # Reading

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is anything at the root."""

    @abstractmethod
    def entries(self) -> list[str]:
        """What lies directly under the root, objects and folders, sorted."""

    @abstractmethod
    def listing(self, folder: str = "") -> dict[str, Stat]:
        """Every object below a folder by its name, sorted; nothing where there is no such folder."""

    @abstractmethod
    def stat(self, name: str) -> Stat | None:
        """What is known of one object without reading it; None when there is none."""

    def glance(self, name: str) -> Stat | None:
        """The same; while a run holds the lock, what an earlier look at the folder told serves as well."""
        return self.stat(name)

    def ahead(self, folder: str) -> AbstractContextManager[None]:
        """Within, every small object below a folder is read from what was fetched at once, where that saves time."""
        del folder
        return nullcontext()

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """Open an object for reading at any place of it.

        Raises:
            OSError: it cannot be opened; FileNotFoundError: there is none.
        """

    def read_bytes(self, name: str, limit: int = -1) -> bytes:
        """Read an object, by default as a whole, else its first ``limit`` bytes."""
        try:
            with self.open(name) as stream:
                return stream.read(limit)
        except OSError as error:
            raise storage_error("read", self.address(name), error) from error

    def read_json(self, name: str) -> Any:
        """Read an object that holds JSON.

        Raises:
            StoreError: there is none, it is longer than ``MAX_JSON_BYTES``, or it is not JSON.
        """
        content = self.read_bytes(name, MAX_JSON_BYTES + 1)
        problem = f"more than {MAX_JSON_BYTES >> 20} MB" if len(content) > MAX_JSON_BYTES else None
        try:
            if problem is None:
                return json.loads(content.decode())
        except RecursionError:
            problem = "nested too deeply"
        except ValueError as error:
            problem = str(error)
        raise StoreError(
            f"{self.address(name)} is not valid JSON ({problem}); restore it from a copy, or build the store again in "
            "an empty folder"
        )

    def record(self, name: str) -> FileRecord:
        """Hash an object as it is now."""
        hasher, size = hashlib.sha256(), 0
        try:
            with self.open(name) as stream:
                while chunk := stream.read(_CHUNK):
                    hasher.update(chunk)
                    size += len(chunk)
        except OSError as error:
            raise storage_error("read", self.address(name), error) from error
        return FileRecord(hasher.hexdigest(), size)

    # Writing

    @abstractmethod
    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        """Put what ``fill`` writes in the place of an object, durably; on any failure the old one is untouched.

        Without ``flush`` the caller flushes the name, once for several objects.
        """

    @abstractmethod
    def flush(self, names: Iterable[str]) -> None:
        """Make the names of written objects survive a power cut; their content does already."""

    def write_all(self, fills: Iterable[tuple[str, Fill]]) -> dict[str, FileRecord]:
        """Write several objects side by side, each durably; ``fills`` may make the next while others are written."""
        with ThreadPoolExecutor(WRITERS) as pool:
            pending = {name: pool.submit(self.write, name, fill, flush=False) for name, fill in fills}
        records = {name: written.result() for name, written in pending.items()}
        self.flush(records)
        return records

    def write_bytes(self, name: str, content: bytes) -> FileRecord:
        """Write an object whose content is at hand."""
        return self.write(name, lambda sink: sink.write(content))

    def write_json(self, name: str, value: Any) -> FileRecord:
        """Write indented JSON."""
        return self.write_bytes(name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object, or a folder with all that is in it; nothing happens when there is none."""

    # Replacing

    @abstractmethod
    def replace(self, source: str, target: str) -> None:
        """Move the object ``source`` to the place of ``target``; nothing happens when it has been moved before."""

    @abstractmethod
    def mark(self, folder: str) -> str:
        """What tells a folder from the one in whose place it will be put, also after that."""

    @abstractmethod
    def replace_folder(self, source: str, target: str, mark: str) -> None:
        """Move the folder ``source``, whose mark was ``mark``, to the place of ``target``, and remove what was there.

        Readers see one or the other, where the backend can do that. After a kill the same call goes on.
        """

    # One writer

    @abstractmethod
    def writer(self) -> str | None:
        """Who holds the one writer's lock right now; None when nobody does, or nobody can tell. Changes nothing."""

    @abstractmethod
    def lock(self) -> AbstractContextManager[Address]:
        """Hold the one writer's lock; it dies with the process, however that ends, at once or after a lease.

        Yields the address of the storage by which the holder and its workers write.

        Raises:
            StoreError: another process holds it. ReadOnlyError: nothing can be written here.
        """


_FIXES: Mapping[int, str] = {
    28: "free some space and run the same command again; finished shards are kept",
    122: "raise the quota or free some space and run the same command again; finished shards are kept",
    30: "choose a folder on a writable filesystem with --out",
    13: "choose a folder you may write to with --out, or change its permissions",
    1: "choose a folder you may write to with --out, or change its permissions",
    20: "a file stands where a folder is needed; remove it or choose another --out",
    17: "a file stands where a folder is needed; remove it or choose another --out",
}
_READ_ONLY = {30, 13, 1}


def storage_error(action: str, address: str, error: OSError) -> StoreError:
    """Describe a failed operation in one sentence, with the fix."""
    fix = _FIXES.get(error.errno or 0, "check the disk and run the same command again; finished shards are kept")
    kind = ReadOnlyError if error.errno in _READ_ONLY else StoreError
    return kind(f"cannot {action} {address}: {error.strerror or error}; {fix}")
