"""A folder of an object store as storage: Amazon S3, Google Cloud Storage, Azure Blob Storage, and the like.

An object exists as a whole or not at all, so there are no temporary objects. Every write first checks the lease of the
writer (see :mod:`.lease`). A request takes tens of milliseconds: listings are cached while a run holds the lock, as
only its own processes write then. The library repeats requests after temporary errors, within a limit of seconds.
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
from .base import TEMPORARY, Address, FileRecord, Fill, Stat, Storage, Url
from .lease import LOCK, Lease, Version, check_lease, lease_seconds
from .object_errors import explained

EXTRA = "cloud"
REQUESTS = 32
"""Parallel requests that fetch, copy or inspect objects."""
PART = 16 << 20
"""Size of the pieces in which longer objects are sent; an object exists when the last one is confirmed."""
_FIRST_READ = 1 << 20
"""Bytes that opening an object fetches: most objects are shorter."""
_CLOCK = f"{LOCK}.now"

_REQUEST_SECONDS = 40.0
"""Longest duration of one request."""
_CONTACT = {"timeout": "10s", "connect_timeout": "4s"}, 5.0
_WORK = {"timeout": f"{_REQUEST_SECONDS:.0f}s", "connect_timeout": "5s"}, None
"""Client options, and the seconds for which requests are repeated: the first request, and all others
(:func:`_patience`)."""
_MOST_RETRIES = 10_000
"""Practically unlimited, so that only the time limit ends the retries: with the library's jittered pauses, ten retries
take two seconds."""


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
        """Use ``root``; no request is sent yet."""
        self.root = root
        self._lease = root.lease
        self._listed = _listed(root.text, root.lease) if root.lease else dict[str, dict[str, Stat]]()
        self._prefetched: dict[str, bytes] = {}

    @property
    def _client(self) -> Any:
        return _client(self.root.text)

    def address(self, name: str = "") -> str:
        """Return the address as it was given."""
        return f"{self.root}/{name}" if name else str(self.root)

    def local_path(self, name: str = "") -> Path:
        """Raise an error: objects have no path.

        Raises:
            StoreError: always.
        """
        raise StoreError(f"{self.address(name)} is not a file of this machine; copy the store to a local folder first")

    @contextlib.contextmanager
    def _explained(self, action: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except (_library().exceptions.BaseError, OSError, ValueError) as error:
            raise explained(action, self.address(name), error, endpoint(self.root.text)) from error

    def check_contents(self) -> None:
        """Do nothing: object stores have no links."""

    # Reading

    def exists(self) -> bool:
        """Whether an object exists below the address."""
        return bool(self.entries())

    def entries(self) -> list[str]:
        """Return the first components of all names."""
        with self._explained("list"):
            listed = _library().list_with_delimiter(self._client)
        names = [*listed["common_prefixes"], *(meta["path"] for meta in listed["objects"])]
        return sorted(name for name in map(str, names) if not name.startswith(LOCK))

    def listing(self, folder: str = "") -> dict[str, Stat]:
        """Return every object below a folder except the lock; one request per 1,000 objects."""
        with self._explained("list", folder):
            metas = _library().list(self._client, folder or None, chunk_size=1000).collect()
        return {
            meta["path"]: _stat(meta)
            for meta in sorted(metas, key=lambda meta: meta["path"])
            if not meta["path"].startswith(LOCK)
        }

    def stat(self, name: str) -> Stat | None:
        """Return length and ETag of an object, by a request."""
        if not _is_name(name):
            return None
        try:
            with self._explained("read", name):
                return _stat(_library().head(self._client, name))
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def cached_stat(self, name: str) -> Stat | None:
        """Return the result of :meth:`stat` from the first listing of its folder and our own writes since then."""
        folder, slash, _ = name.rpartition("/")
        if not slash:
            return self.stat(name)
        if folder not in self._listed:
            self._listed[folder] = self.listing(folder)
        return self._listed[folder].get(name)

    def _note(self, name: str, stat: Stat | None) -> None:
        """Keep the listings true after a write of our own."""
        for folder, listed in list(self._listed.items()):
            if stat is None:
                listed.pop(name, None)
            elif name.startswith(f"{folder}/"):
                listed[name] = stat

    @contextlib.contextmanager
    def prefetch(self, folder: str) -> Iterator[None]:
        """Fetch all objects below a folder in parallel; within the context they are read from memory."""
        with ThreadPoolExecutor(REQUESTS) as pool:
            names = list(self.listing(folder))
            self._prefetched = dict(zip(names, pool.map(self.read_bytes, names), strict=True))
        try:
            yield
        finally:
            self._prefetched = {}

    def open(self, name: str) -> IO[bytes]:
        """Open an object; its beginning is fetched now, the rest by range requests.

        Raises:
            FileNotFoundError: the object does not exist. OSError: it cannot be read.
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
        return io.BufferedReader(_Ranges(self, name, head, size), _FIRST_READ)

    def _first_part(self, name: str) -> tuple[bytes, int]:
        library = _library()
        try:
            answer = library.get(self._client, name, options={"range": (0, _FIRST_READ)})
            return bytes(answer.bytes()), answer.meta["size"]
        except library.exceptions.BaseError:
            if library.head(self._client, name)["size"]:
                raise
            return b"", 0  # an empty object has no ranges

    def part(self, name: str, start: int, stop: int) -> Any:
        """Read bytes of an object.

        Raises:
            OSError: the bytes cannot be read.
        """
        try:
            return _library().get_range(self._client, name, start=start, end=stop)
        except _library().exceptions.BaseError as error:
            raise OSError(str(explained("read", self.address(name), error, endpoint(self.root.text)))) from error

    def read_bytes(self, name: str, limit: int = -1) -> bytes:
        """Read an object by one request, or from the prefetched ones."""
        del limit  # most objects are shorter than what is worth a second request
        if name in self._prefetched:
            return self._prefetched[name]
        self._check_name(name)
        with self._explained("read", name):
            return bytes(_library().get(self._client, name).bytes())

    def record(self, name: str) -> FileRecord:
        """Read an object and return its digest and length."""
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
        """Put an object; it is durable when the server confirms it."""
        del flush
        sink = io.BytesIO()
        fill(sink)
        content = sink.getvalue()
        self._check_name(name)
        self._fence()
        with self._explained("write", name):
            put = _library().put(self._client, name, content, chunk_size=PART)
        self._note(name, Stat(len(content), put["e_tag"] or ""))
        return FileRecord(hashlib.sha256(content).hexdigest(), len(content))

    def _check_name(self, name: str) -> None:
        if not _is_name(name):
            raise StoreError(f"{name!r} is outside of {self.root}; expected names below it")

    def flush(self, names: Iterable[str]) -> None:
        """Do nothing: a put is durable."""

    def delete(self, name: str) -> None:
        """Remove an object and every object below its name."""
        if name:
            self._check_name(name)
        names = [*([name] if name else []), *self.listing(name)]
        self._fence()
        with self._explained("remove", name), contextlib.suppress(FileNotFoundError):
            if names:
                _library().delete(self._client, names)
        for each in names:
            self._note(each, None)

    # Replacing

    def replace(self, source: str, target: str) -> None:
        """Copy within the server, then remove the source."""
        self._fence()
        with self._explained("replace", target):
            try:
                _library().copy(self._client, source, target)
            except FileNotFoundError:
                return
        self._listed.clear()
        self.delete(source)

    def folder_id(self, folder: str) -> str:
        """Return the names in the folder: after a kill, some of its objects may have been moved."""
        return "\n".join(name.removeprefix(f"{folder}/") for name in self.listing(folder))

    def replace_folder(self, source: str, target: str, source_id: str) -> None:
        """Copy the objects of ``source`` to ``target``, then remove the other objects of ``target``, and ``source``."""
        names = source_id.split("\n")
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
        self._listed.clear()
        for name in sorted(self.listing(target).keys() - {f"{target}/{name}" for name in names}):
            self.delete(name)
        self.delete(source)

    # One writer

    def writer(self) -> str | None:
        """Return the holder of the lock, judged by the clock of this machine, as no object is written."""
        with contextlib.suppress(StoreError):
            return Lease(_Lock(self), str(self.root)).holder()
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Address]:
        """Hold the lock, and remove temporary objects of killed runs; yields the address under which workers write."""
        lease = Lease(_Lock(self), str(self.root))
        with lease.hold():
            # The address of a folder below carries the same lease, so it is written under the same lock.
            before, self._lease = self._lease, f"{lease.token} {self.root}"
            try:
                if self.listing(TEMPORARY):
                    self.delete(TEMPORARY)
                yield Url(self.root.text, self._lease)
            finally:
                self._lease = before


class _Lock:
    """The lock object of a storage, with the operations that a lease needs."""

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


@lru_cache(maxsize=256)
def _listed(address: str, lease: str) -> dict[str, dict[str, Stat]]:
    """Return the listings of this process for an address under a lease, by folder."""
    del address, lease
    return {}


class _Ranges(io.RawIOBase):
    """A seekable stream over an object that fetches byte ranges on demand."""

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


# Connections


@lru_cache(maxsize=64)
def _client(address: str) -> Any:
    """Return the library's client of an address, after a first request succeeded."""
    library = _library()
    first = _make_client(address, *_CONTACT)
    try:
        next(iter(library.list(first, chunk_size=1)), None)
    except (library.exceptions.BaseError, OSError, ValueError) as error:
        raise explained("open", address, error, endpoint(address)) from error
    return _make_client(address, *_WORK)


def _patience() -> float:
    """Return the seconds for which a request is repeated while the object store is busy (status 503) or away.

    The last repetition ends before the lease of the writer does, so that no write is late.
    """
    return max(1.0, lease_seconds() - _REQUEST_SECONDS)


def _make_client(address: str, options: Mapping[str, str], limit: float | None) -> Any:
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2}
    seconds = timedelta(seconds=_patience() if limit is None else limit)
    retry = {"max_retries": _MOST_RETRIES, "retry_timeout": seconds, "backoff": backoff}
    try:
        server = urlsplit(endpoint(address) or "")
        _ = server.port  # the library panics at an invalid port
    except ValueError:  # its message holds the address with its credentials
        raise StoreError(
            f"cannot open {address}: the environment variable for its server does not hold an address; expected "
            "http://HOST:PORT"
        ) from None
    plain = server.scheme == "http"
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
    """Return the server named by an environment variable; None for the cloud's own."""
    names = {
        "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "gs": ("GOOGLE_BASE_URL",),
        "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    }
    return next((os.environ[name] for name in names[address.partition(":")[0]] if os.environ.get(name)), None)


def region() -> str | None:
    """Return the region of S3 named by an environment variable."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
