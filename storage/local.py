"""A local folder as storage.

Every file is written under ``ROOT/.tmp``, flushed to disk, moved over its final name, and the folder is flushed, so a
kill or a power cut at any moment leaves no torn file under a final name.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import StoreError
from .address import Address
from .base import FileRecord, Fill, Stat, Storage, storage_error

TEMPORARY = ".tmp"
LOCK = ".lock"

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def write_file(path: Path, content: bytes) -> None:
    """Write one file that belongs to no store, whole or not at all; nothing else is left in its folder.

    Raises:
        StoreError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}; choose another place for it") from error


class _HashingWriter:
    """A binary sink that hashes what it writes, so that no file is read back for its digest."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._size += view.nbytes
        return self._raw.write(view)

    def flush(self) -> None:
        self._raw.flush()

    def record(self) -> FileRecord:
        return FileRecord(self._hash.hexdigest(), self._size)


class LocalStorage(Storage):
    """The files of one folder of this machine."""

    def __init__(self, root: Path) -> None:
        """Use ``root``, which is made by the first write."""
        self.root = root

    def address(self, name: str = "") -> str:
        """The path as it was given."""
        return str(self.root / name)

    def local_path(self, name: str = "") -> Path:
        """Return the path of a file.

        Raises:
            StoreError: the name leads out of the folder, as one from a stranger's manifest may.
        """
        return Path(self._inside(name))

    def _inside(self, name: str) -> str:
        """A path as text, many times quicker to make than a Path."""
        if name.startswith("/") or ".." in name.split("/"):
            raise StoreError(f"{name!r} lies outside of {self.root}; a store names its own files only")
        return f"{self.root}/{name}"

    # Reading

    def exists(self) -> bool:
        """Whether there is anything at the root."""
        return self.root.exists()

    def entries(self) -> list[str]:
        """Names of files and folders directly under the root."""
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(f"{self.root} is a file; name a folder")
        try:
            return sorted(path.name for path in self.root.iterdir()) if self.root.is_dir() else []
        except OSError as error:
            raise storage_error("list", self.address(), error) from error

    def listing(self, folder: str = "") -> dict[str, Stat]:
        """Every file below a folder but our own, the lock and half-written ones; links to folders are not followed."""
        found: dict[str, Stat] = {}
        for place, _, files in os.walk(self.local_path(folder)):
            below = Path(place).relative_to(self.root).as_posix()
            if below.split("/")[0] != TEMPORARY:
                stats = {name if below == "." else f"{below}/{name}": _stat(f"{place}/{name}") for name in files}
                found |= {name: status for name, status in stats.items() if status is not None and name != LOCK}
        return dict(sorted(found.items()))

    def stat(self, name: str) -> Stat | None:
        """Length and time of change of a file; None also for a name that cannot be one."""
        try:
            return _stat(self._inside(name))
        except StoreError:
            return None

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""
        return self.local_path(name).open("rb")

    # Writing

    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        """Write a file durably."""
        target = self.local_path(name)
        temporary = self.root / TEMPORARY / f"{name.replace('/', '-')}.{os.getpid()}"
        try:
            temporary.parent.mkdir(parents=True, exist_ok=True)
            _make_folder(target.parent)
            with temporary.open("wb") as raw:
                sink = _HashingWriter(raw)
                fill(sink)
                raw.flush()
                os.fsync(raw.fileno())
            temporary.replace(target)
            if flush:
                _sync_folder(target.parent)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise storage_error("write", str(target), error) from error
            raise
        return sink.record()

    def flush(self, names: Iterable[str]) -> None:
        """Flush the folders of the files, each once."""
        try:
            for folder in sorted({self.local_path(name).parent for name in names}):
                _sync_folder(folder)
        except OSError as error:
            raise storage_error("write to", self.address(), error) from error

    def delete(self, name: str) -> None:
        """Remove a file or a folder."""
        path = self.local_path(name)
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error("remove", str(path), error) from error

    # Replacing

    def replace(self, source: str, target: str) -> None:
        """Rename a file."""
        try:
            with contextlib.suppress(FileNotFoundError):
                self.local_path(source).replace(self.local_path(target))
        except OSError as error:
            raise storage_error("replace", self.address(target), error) from error

    def mark(self, folder: str) -> str:
        """The inode: a folder keeps it when it is renamed."""
        try:
            return str(self.local_path(folder).stat().st_ino)
        except OSError as error:
            raise storage_error("read", self.address(folder), error) from error

    def replace_folder(self, source: str, target: str, mark: str) -> None:
        """Exchange two folders and remove the old one."""
        new, current = self.local_path(source), self.local_path(target)
        try:
            if not current.exists():
                new.rename(current)
            elif self.mark(target) != mark:
                _exchange(current, new)
            _sync_folder(current.parent)
            for old in (new, _aside(current)):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(old)
        except OSError as error:
            raise storage_error("replace", str(current), error) from error

    # One writer

    def writer(self) -> str | None:
        """The process that holds the lock of the folder, from a look at it: nothing is made or waited for."""
        try:
            with (self.root / LOCK).open("rb") as stream:
                try:
                    fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return stream.read().decode(errors="replace").strip() or "unknown"
        except OSError:
            pass
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Address]:
        """Hold the lock of the folder, and clear away what killed writers left half written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            stream = (self.root / LOCK).open("a+b", buffering=0)
        except OSError as error:
            raise storage_error("write to", self.address(), error) from error
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stream.truncate(0)
                stream.write(str(os.getpid()).encode())
            except BlockingIOError:
                stream.seek(0)
                holder = stream.read().decode(errors="replace").strip() or "unknown"
                raise StoreError(
                    f"{self.root} is being written by another run (process {holder}); wait for its end, "
                    "or choose another --out"
                ) from None
            except OSError as error:
                raise storage_error("lock", self.address(), error) from error
            try:
                shutil.rmtree(self.root / TEMPORARY, ignore_errors=True)
                yield self.root
            finally:
                shutil.rmtree(self.root / TEMPORARY, ignore_errors=True)


def _stat(path: str) -> Stat | None:
    """What a file's entry tells: half of the time of Path.stat, and a listing asks for every file of a store."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return Stat(status.st_size, str(status.st_mtime_ns)) if stat.S_ISREG(status.st_mode) else None


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and flush the entries that name them."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-old")


def _exchange(first: Path, second: Path) -> None:
    """Exchange two folders, atomically where the system can (Linux ``renameat2``)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        done = renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
        if done == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(first))
    aside = _aside(first)
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
