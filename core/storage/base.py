"""The interface of a storage: objects under one root, each replaced as a whole, so that readers never see half of one.

Names are relative to the root and separated by ``/``; a *folder* is every name with the same beginning. A backend
needs whole-object writes, listing by folder, deletion and a lock for one writer, which a local folder and an object
store both have. Only :func:`parse_address` turns text into an address, where it enters the program: ``Path`` would drop
a slash of ``s3://bucket/folder``. Only ``replace`` and ``replace_folder`` move objects; :mod:`.commit` combines them
into one step.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

from .. import plugins
from ..contracts import Answer, Contract, Terms
from ..errors import ConfigError, ForbiddenError, ReadOnlyError, StoreError, masked

EXPECTED = "expected a folder, or an address such as s3://bucket/folder, gs://bucket/folder or az://container/folder"


@dataclass(frozen=True, slots=True)
class Url:
    """A folder of an object store, such as ``s3://bucket/folder``, without a slash at the end."""

    text: str
    lease: str = field(default="", compare=False, repr=False)
    """Lease under which a writer may write here; :meth:`Storage.lock` sets it."""

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Url":
        return Url(f"{self.text}/{name}", self.lease)

    @property
    def parent(self) -> "Url":
        """The folder above."""
        return Url(self.text.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.text.rpartition("/")[2]

    @property
    def scheme(self) -> str:
        """Name of the storage (group ``pivot.storages``), such as ``s3``."""
        return self.text.partition("://")[0]


Address = Path | Url


def parse_address(text: str | Address) -> Address:
    """Return text as a path, or as the address of an object store; a path or :class:`Url` is returned as it is.

    Raises:
        ConfigError: the text has a scheme, but it is not a valid address of a supported object store.
    """
    if not isinstance(text, str):
        return text
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "hub":
        raise ConfigError(
            f"{text} is a dataset of the Hugging Face hub, expected a folder or the address of an object store; build "
            f"into a folder, then publish it: pivot push DIR {text}"
        )
    schemes = plugins.names("storages") if colon else []
    if not colon or not (scheme in schemes or rest.startswith("//")):
        return Path(text)
    if scheme not in schemes:
        raise ConfigError(
            f"{text} cannot hold a store (unknown scheme {scheme}://, registered: {', '.join(schemes)}); {EXPECTED}"
        )
    if masked(text) != text:
        raise ConfigError(
            f"{text} holds a login or a key, expected the bucket alone; give keys as environment variables"
        )
    match = re.fullmatch(r"//([^/?#\s]+)((?:/[^/?#]+)*)/*", rest)
    if match is None or any(part in (".", "..") for part in match[2].split("/")):
        raise ConfigError(f"{text} is not an address of an object store; {EXPECTED}")
    return Url(f"{scheme}://{match[1]}{match[2]}")


TEMPORARY = ".tmp"
"""Folder of objects that the next holder of the lock removes."""

MAX_JSON_BYTES = 32 << 20
"""Longest JSON object that is parsed: a manifest of 200,000 files. Parsed, it needs up to 25 times as much memory."""

_CHUNK = 1 << 20

Fill = Callable[[Any], object]
"""Writes the content of an object into a binary sink."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Digest and length of an object, as the manifest lists them."""

    sha256: str
    bytes: int

    @classmethod
    def decode(cls, raw: Any) -> "FileRecord":
        """Read a record as JSON holds it.

        Raises:
            TypeError: a field is missing or has a wrong type.
        """
        record = cls(**raw)
        if not isinstance(record.sha256, str) or type(record.bytes) is not int:
            raise TypeError("expected a text 'sha256' and a whole number 'bytes'")
        return record


@dataclass(frozen=True, slots=True)
class Stat:
    """Length and version of an object, as a listing has them without reading it."""

    bytes: int
    changed: str
    """Differs after every write: modification time of a local file in nanoseconds, ETag of an object."""


class Storage(Contract, ABC):
    """Objects under one root. A failed operation raises StoreError, which names the object and what to do next.

    A plugin (group ``pivot.storages``) is registered under the scheme of its addresses and takes a :class:`Url`.
    """

    terms: ClassVar[Terms] = Terms(
        arguments=1,
        answers={
            "address": Answer(str),
            "exists": Answer(bool),
            "entries": Answer(list[str]),
            "listing": Answer(dict[str, Stat]),
            "sizes": Answer(dict[str, int]),
            "local_path": Answer(Path),
            "stat": Answer(Stat | None),
            "cached_stat": Answer(Stat | None),
            "record": Answer(FileRecord),
            "write": Answer(FileRecord),
            "folder_id": Answer(str),
            "writer": Answer(str | None),
        },
    )

    remote: ClassVar[bool] = False
    """Whether every operation is a request to a server, which never keeps half of an object."""

    # Addresses

    @abstractmethod
    def address(self, name: str = "") -> str:
        """Return the address of an object or the root, for messages and for libraries that open addresses."""

    @abstractmethod
    def local_path(self, name: str = "") -> Path:
        """Return the address as a path, for libraries that open local files only, such as DuckDB.

        Raises:
            StoreError: the storage is not a local folder.
        """

    @abstractmethod
    def check_contents(self) -> None:
        """Refuse links and special files below the root; a reader calls it before anything else.

        Raises:
            StoreError: a link or special file was found; the message names it.
        """

    # Reading

    @abstractmethod
    def exists(self) -> bool:
        """Whether the root exists."""

    @abstractmethod
    def entries(self) -> list[str]:
        """Return the sorted names of the objects and folders directly under the root."""

    @abstractmethod
    def listing(self, folder: str = "") -> dict[str, Stat]:
        """Return every object below a folder, sorted by name; an empty dict if the folder does not exist."""

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file below the root by name; of a folder also temporary files and the lock."""
        return {name: each.bytes for name, each in self.listing().items()}

    @abstractmethod
    def stat(self, name: str) -> Stat | None:
        """Return length and version of an object; None if it does not exist.

        Raises:
            StoreError: access to the object is denied.
        """

    def cached_stat(self, name: str) -> Stat | None:
        """Return the same, possibly from an earlier listing of the folder while this run holds the lock."""
        return self.stat(name)

    def prefetch(self, folder: str) -> AbstractContextManager[None]:
        """Prefetch the objects below a folder if that saves requests; within the context they are read from memory."""
        del folder
        return nullcontext()

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """Open an object for reading; the stream is seekable.

        Raises:
            OSError: it cannot be opened; FileNotFoundError: it does not exist.
        """

    def read_bytes(self, name: str, limit: int = -1) -> bytes:
        """Read an object, by default as a whole, else its first ``limit`` bytes."""
        try:
            with self.open(name) as stream:
                return stream.read(limit)
        except OSError as error:
            raise storage_error("read", self.address(name), error) from error

    def read_json(self, name: str) -> Any:
        """Read and parse a JSON object.

        Raises:
            StoreError: it does not exist, is longer than ``MAX_JSON_BYTES``, or is not JSON.
        """
        content = self.read_bytes(name, MAX_JSON_BYTES + 1)
        problem = f"more than {MAX_JSON_BYTES >> 20} MB" if len(content) > MAX_JSON_BYTES else None
        try:
            if problem is None:
                value = json.loads(content.decode())
                if b"\\ud" in content.lower():  # half of a surrogate pair, which no file could hold again
                    json.dumps(value, ensure_ascii=False).encode()
                return value
        except RecursionError:
            problem = "nested too deeply"
        except ValueError as error:
            problem = str(error)
        raise StoreError(
            f"{self.address(name)} is not valid JSON ({problem}); restore it from a copy, or build the store again in "
            "an empty folder"
        )

    def record(self, name: str) -> FileRecord:
        """Read an object and return its digest and length."""
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
        """Replace an object by the content that ``fill`` writes, durably; after a failure the old one is unchanged.

        Without ``flush`` the caller calls :meth:`flush` itself, once for several objects.
        """

    @abstractmethod
    def flush(self, names: Iterable[str]) -> None:
        """Flush the names of written objects, so that they survive a power cut; their content does already."""

    def write_bytes(self, name: str, content: bytes) -> FileRecord:
        """Write an object from bytes."""
        return self.write(name, lambda sink: sink.write(content))

    def write_json(self, name: str, value: Any) -> FileRecord:
        """Write indented JSON."""
        return self.write_bytes(name, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object, or a folder with everything in it, if it exists."""

    # Replacing

    @abstractmethod
    def replace(self, source: str, target: str) -> None:
        """Move the object ``source`` over ``target``; do nothing if it was moved before."""

    @abstractmethod
    def folder_id(self, folder: str) -> str:
        """Return a text that identifies a folder before and after :meth:`replace_folder` moved it."""

    @abstractmethod
    def replace_folder(self, source: str, target: str, source_id: str) -> None:
        """Move the folder ``source``, whose id is ``source_id``, over ``target``, and remove the old one.

        Readers see either folder whole, if the backend can exchange folders. After a kill, the same call resumes.
        """

    # One writer

    @abstractmethod
    def writer(self) -> str | None:
        """Return the process that holds the writer's lock; None if there is none or it is unknown. Changes nothing."""

    @abstractmethod
    def lock(self) -> AbstractContextManager[Address]:
        """Hold the writer's lock; it ends with the process, at once (local folder) or when its lease expires.

        Objects below :data:`TEMPORARY`, which killed runs left, are removed first.

        Yields the address under which the holder and its workers write.

        Raises:
            StoreError: another process holds the lock. ReadOnlyError: the storage is not writable.
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
_FORBIDDEN = {13, 1}


def storage_error(action: str, address: str, error: OSError) -> StoreError:
    """Describe a failed operation in one sentence, with the fix."""
    fix = _FIXES.get(error.errno or 0, "check the disk and run the same command again; finished shards are kept")
    kind = ReadOnlyError if error.errno in _READ_ONLY else StoreError
    if action in ("read", "list") and error.errno in _FORBIDDEN:
        kind, fix = ForbiddenError, "change its permissions so that you may read it, or use a copy of your own"
    return kind(f"cannot {action} {address}: {error.strerror or error}; {fix}")


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
