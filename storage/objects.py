"""A folder of an object store as storage: Amazon S3, Google Cloud Storage, Azure Blob Storage, and the like.

An object is there as a whole or not at all, so nothing is staged. What is written is fenced by the lease of the writer
(see :mod:`.lease`). A request takes tens of milliseconds: what one listing tells is remembered while a run holds the
lock, as only its own processes write then. The library retries what passes by itself, within a limit of seconds.
"""

import contextlib
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from ..errors import PluginError, StoreError
from .address import Address, Url
from .base import FileRecord, Fill, Stat, Storage
from .lease import LOCK, Lease, Version, check_lease
from .object_errors import explained

EXTRA = "cloud"
REQUESTS = 32
"""Objects that are fetched, copied or looked at side by side."""
PART = 16 << 20
"""Bytes of an object above which it is sent in parts of that size; it is there when the last one is confirmed."""
_AHEAD = 1 << 20
"""Bytes that opening an object fetches: most are no longer."""
_CLOCK = f"{LOCK}.now"

_CONTACT = {"timeout": "10s", "connect_timeout": "4s"}, 2, 5.0
_WORK = {"timeout": "40s", "connect_timeout": "5s"}, 10, 20.0
"""Client options, retries, and seconds after which nothing is tried again: of the first request, and of all others."""


def _library() -> Any:
    try:
        return import_module("obstore")
    except ModuleNotFoundError as error:
        raise PluginError(
            f"stores in object stores need package 'obstore'; get it with: pip install 'pivot-vlm[{EXTRA}]'"
        ) from error


class ObjectStorage(Storage):
    """The objects below one address."""

    remote = True

    def __init__(self, root: Url) -> None:
        """Use ``root``; nothing is asked of the server yet."""
        self.root = root
        self._lease = root.lease
        self._listed = _listed(root.text, root.lease) if root.lease else _Listed()
        self._ahead: dict[str, bytes] = {}

    @property
    def _client(self) -> Any:
        return _client(self.root.text)

    def address(self, name: str = "") -> str:
        """The address as it was given."""
        return f"{self.root}/{name}" if name else str(self.root)

    def local_path(self, name: str = "") -> Path:
        """There is none.

        Raises:
            StoreError: always.
        """
        raise StoreError(f"{self.address(name)} is no file of this machine; copy the store to a local folder first")

    @contextlib.contextmanager
    def _explained(self, action: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except (_library().exceptions.BaseError, OSError, ValueError) as error:
            raise explained(action, self.address(name), error, endpoint(self.root.text)) from error

    def check_contents(self) -> None:
        """Do nothing: an object store knows no links."""

    # Reading

    def exists(self) -> bool:
        """Whether there is any object below the address."""
        return bool(self.entries())

    def entries(self) -> list[str]:
        """First parts of the names."""
        with self._explained("list"):
            listed = _library().list_with_delimiter(self._client)
        names = [*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"])]
        return sorted(name for name in map(str, names) if not name.startswith(LOCK))

    def listing(self, folder: str = "") -> dict[str, Stat]:
        """Every object below a folder but the lock: a request for a thousand."""
        with self._explained("list", folder):
            metas = _library().list(self._client, folder or None, chunk_size=1000).collect()
        return {
            meta["path"]: _stat(meta)
            for meta in sorted(metas, key=lambda meta: meta["path"])
            if not meta["path"].startswith(LOCK)
        }

    def stat(self, name: str) -> Stat | None:
        """Length and tag of an object, asked for now."""
        if not _is_name(name):
            return None
        try:
            with self._explained("read", name):
                return _stat(_library().head(self._client, name))
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def glance(self, name: str) -> Stat | None:
        """The same as of the first look at its folder, or our own last write: one request for a folder, not a file."""
        return self._listed.of(name, self)

    @contextlib.contextmanager
    def ahead(self, folder: str) -> Iterator[None]:
        """Fetch all objects below a folder side by side, to be read from memory within."""
        with ThreadPoolExecutor(REQUESTS) as pool:
            names = list(self.listing(folder))
            self._ahead = dict(zip(names, pool.map(self.read_bytes, names), strict=True))
        try:
            yield
        finally:
            self._ahead = {}

    def open(self, name: str) -> IO[bytes]:
        """Open an object; its first part is fetched, what else is read comes by ranges.

        Raises:
            FileNotFoundError: there is none. OSError: it cannot be read.
        """
        if not _is_name(name):
            raise FileNotFoundError(2, "No such object", self.address(name))
        try:
            head, size = self._first_part(name)
        except FileNotFoundError as error:
            raise FileNotFoundError(2, "No such object", self.address(name)) from error
        except _library().exceptions.BaseError as error:
            raise OSError(str(explained("read", self.address(name), error, endpoint(self.root.text)))) from error
        if size == len(head):
            return io.BytesIO(head)
        return io.BufferedReader(_Ranges(self, name, head, size), _AHEAD)

    def _first_part(self, name: str) -> tuple[bytes, int]:
        library = _library()
        try:
            answer = library.get(self._client, name, options={"range": (0, _AHEAD)})
            return bytes(answer.bytes()), answer.meta["size"]
        except library.exceptions.BaseError:
            if library.head(self._client, name)["size"]:
                raise
            return b"", 0  # of nothing no part can be had

    def part(self, name: str, start: int, stop: int) -> Any:
        """Read bytes of an object.

        Raises:
            OSError: they cannot be read.
        """
        try:
            return _library().get_range(self._client, name, start=start, end=stop)
        except _library().exceptions.BaseError as error:
            raise OSError(str(explained("read", self.address(name), error, endpoint(self.root.text)))) from error

    def read_bytes(self, name: str, limit: int = -1) -> bytes:
        """Read an object by one request, or none where it was prefetched."""
        del limit  # most objects are shorter than what is worth a second request
        if name in self._ahead:
            return self._ahead[name]
        self._check_name(name)
        with self._explained("read", name):
            return bytes(_library().get(self._client, name).bytes())

    def record(self, name: str) -> FileRecord:
        """Hash an object as it is now."""
        hasher, size = hashlib.sha256(), 0
        with self._explained("read", name):
            for chunk in _library().get(self._client, name).stream():
                hasher.update(chunk)
                size += len(chunk)
        return FileRecord(hasher.hexdigest(), size)

    # Writing

    def _fence(self) -> None:
        if self._lease:
            token, _, root = self._lease.partition(" ")
            check_lease(token, root, lambda: _Lock(ObjectStorage(Url(root))))

    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        """Put an object; it is durable when the server says so."""
        del flush
        sink = io.BytesIO()
        fill(sink)
        content = sink.getvalue()
        self._check_name(name)
        self._fence()
        with self._explained("write", name):
            put = _library().put(self._client, name, content, chunk_size=PART)
        self._listed.note(name, Stat(len(content), put["e_tag"] or ""))
        return FileRecord(hashlib.sha256(content).hexdigest(), len(content))

    def _check_name(self, name: str) -> None:
        if not _is_name(name):
            raise StoreError(f"{name!r} lies outside of {self.root}; a store names its own files only")

    def flush(self, names: Iterable[str]) -> None:
        """Nothing is left to do: a put is durable."""

    def delete(self, name: str) -> None:
        """Remove an object and all below its name."""
        if name:
            self._check_name(name)
        names = [*([name] if name else []), *self.listing(name)]
        self._fence()
        with self._explained("remove", name), contextlib.suppress(FileNotFoundError):
            if names:
                _library().delete(self._client, names)
        for each in names:
            self._listed.note(each, None)

    # Replacing

    def replace(self, source: str, target: str) -> None:
        """Copy within the server, then remove the source."""
        self._fence()
        with self._explained("replace", target):
            try:
                _library().copy(self._client, source, target)
            except FileNotFoundError:
                return
        self._listed.forget()
        self.delete(source)

    def mark(self, folder: str) -> str:
        """What is in it: after a kill, half of it may have been moved."""
        return "\n".join(name.removeprefix(f"{folder}/") for name in self.listing(folder))

    def replace_folder(self, source: str, target: str, mark: str) -> None:
        """Copy what is in ``source`` over ``target``, then remove what was in it alone, and the source."""
        names = mark.split("\n")
        left = self.listing(source)
        self._fence()
        with self._explained("replace", target), ThreadPoolExecutor(REQUESTS) as pool:
            copies = [
                pool.submit(_library().copy, self._client, f"{source}/{name}", f"{target}/{name}")
                for name in names
                if f"{source}/{name}" in left
            ]
            for copy in copies:
                copy.result()
        self._listed.forget()
        for name in sorted(self.listing(target).keys() - {f"{target}/{name}" for name in names}):
            self.delete(name)
        self.delete(source)

    # One writer

    def writer(self) -> str | None:
        """Who holds the lock, from a look at it: by the clock of this machine, as nothing is written."""
        with contextlib.suppress(StoreError):
            return Lease(_Lock(self), str(self.root)).holder()
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Address]:
        """Hold the lock; yields the address by which workers write under it."""
        lease = Lease(_Lock(self), str(self.root))
        with lease.hold():
            # Folders below are written under the same lock, so it goes with the address where that is.
            before, self._lease = self._lease, f"{lease.token} {self.root}"
            try:
                yield Url(self.root.text, self._lease)
            finally:
                self._lease = before


class _Lock:
    """The lock of a storage, as a lease needs it."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self._client = _client(storage.root.text)

    def read(self) -> tuple[bytes, Version, datetime] | None:
        library = _library()
        with self._storage._explained("read", LOCK):
            try:
                answer = library.get(self._client, LOCK)
            except FileNotFoundError:
                return None
            meta = answer.meta
            return bytes(answer.bytes()), Version(meta["e_tag"], meta["version"]), meta["last_modified"]

    def write(self, content: bytes, over: Version | None) -> Version | None:
        library = _library()
        mode: Any = "create" if over is None else {key: value for key, value in asdict(over).items() if value}
        with self._storage._explained("write", LOCK):
            try:
                put = library.put(self._client, LOCK, content, mode=mode, use_multipart=False)
            except (library.exceptions.AlreadyExistsError, library.exceptions.PreconditionError, FileNotFoundError):
                return None
            return Version(put["e_tag"], put["version"])

    def server_time(self) -> datetime:
        library = _library()
        with self._storage._explained("write", _CLOCK):
            library.put(self._client, _CLOCK, os.urandom(8))
            return library.head(self._client, _CLOCK)["last_modified"]


class _Listed:
    """What listings and own writes told while a run holds the lock, folder by folder."""

    def __init__(self) -> None:
        self._folders: dict[str, Mapping[str, Stat]] = {}
        self._own: dict[str, Stat | None] = {}

    def of(self, name: str, storage: ObjectStorage) -> Stat | None:
        if name in self._own:
            return self._own[name]
        folder, slash, _ = name.rpartition("/")
        if not slash:
            return storage.stat(name)
        if folder not in self._folders:
            self._folders[folder] = storage.listing(folder)
        return self._folders[folder].get(name)

    def note(self, name: str, stat: Stat | None) -> None:
        self._own[name] = stat

    def forget(self) -> None:
        self._folders.clear()
        self._own.clear()


@lru_cache(maxsize=256)
def _listed(address: str, lease: str) -> _Listed:
    """What this process knows of an address under a lease."""
    del address, lease
    return _Listed()


class _Ranges(io.RawIOBase):
    """An object of which parts are fetched as they are read."""

    def __init__(self, storage: ObjectStorage, name: str, head: bytes, size: int) -> None:
        super().__init__()
        self._storage, self._name, self._head, self._size = storage, name, head, size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._place + len(view), self._size)
        if stop <= self._place:
            return 0
        if stop <= len(self._head):
            part: Any = memoryview(self._head)[self._place : stop]
        else:
            part = memoryview(self._storage.part(self._name, self._place, stop))
        view[: len(part)] = part
        self._place += len(part)
        return len(part)


def _is_name(name: str) -> bool:
    return bool(name) and not name.startswith("/") and ".." not in name.split("/")


def _stat(meta: Mapping[str, Any]) -> Stat:
    return Stat(meta["size"], meta["e_tag"] or str(meta["last_modified"]))


# Getting in touch


@lru_cache(maxsize=64)
def _client(address: str) -> Any:
    """Return the library's client of an address, after a first request has come through."""
    library = _library()
    first = _make_client(address, *_CONTACT)
    try:
        next(iter(library.list(first, chunk_size=1)), None)
    except (library.exceptions.BaseError, OSError, ValueError) as error:
        raise explained("open", address, error, endpoint(address)) from error
    return _make_client(address, *_WORK)


def _make_client(address: str, options: Mapping[str, str], retries: int, seconds: float) -> Any:
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2}
    retry = {"max_retries": retries, "retry_timeout": timedelta(seconds=seconds), "backoff": backoff}
    plain = urlsplit(endpoint(address) or "").scheme == "http"
    config = {} if not address.startswith("s3:") or region() else {"region": "us-east-1"}
    try:
        return import_module("obstore.store").from_url(
            address,
            config=config,
            client_options={**options, **({"allow_http": True} if plain else {})},
            retry_config=retry,
        )
    except (_library().exceptions.BaseError, ValueError) as error:
        raise explained("open", address, error, endpoint(address)) from error


def endpoint(address: str) -> str | None:
    """Return the server that is named by an environment variable; None for that of the cloud's owner."""
    names = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "gs": ("GOOGLE_BASE_URL",),
        "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    }
    return next((os.environ[name] for name in names[address.partition(":")[0]] if os.environ.get(name)), None)


def region() -> str | None:
    """Return the region of S3 that is named by an environment variable."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
