"""A local folder as storage.

Every file is written under ``ROOT/.tmp``, flushed to disk, moved over its final name, and the folder is flushed, so a
kill or a power cut at any moment leaves no torn file under a final name. Nothing below the root is reached through a
link, for reading or for writing.
"""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import IO

from ..errors import NoStoreError, StoreError
from .base import TEMPORARY, Address, FileRecord, Fill, Stat, Storage, storage_error
from .beneath import check_tree, entry_beneath, files_beneath, path_beneath, refusal

LOCK = ".lock"

_HERE, _RENAME_EXCHANGE = -100, 2
"""Linux' constants: names are relative to the current folder, and the call exchanges them."""

_locked: set[str] = set()
"""Real paths of the folders whose lock this process holds: no other process writes there, so they are checked once."""


def write_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write one file outside of any store, whole or not at all; no temporary file is left in its folder.

    Args:
        path: the file.
        content: what it holds afterwards.
        mode: permissions; by default what the mask of the user leaves.

    Raises:
        StoreError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        missing = isinstance(error, FileNotFoundError)
        why = f"the folder {path.parent} does not exist" if missing else error.strerror
        raise StoreError(f"cannot write {path}: {why}; choose another place for it") from error


@dataclass(eq=False)
class LocalStorage(Storage):
    """The files of one folder of this machine."""

    root: Path
    """The folder, which is made by the first write."""

    def address(self, name: str = "") -> str:
        """Return the path as it was given."""
        return str(self.root / name)

    def local_path(self, name: str = "") -> Path:
        """Return the path of a file.

        Raises:
            StoreError: the name leads out of the folder, as one from an untrusted manifest may have, or through a link.
        """
        with contextlib.suppress(OSError):
            path_beneath(self.root, name)
        return self.root / name

    def check_contents(self) -> None:
        """Refuse links, special files and hard links.

        Raises:
            StoreError: such a file was found; the message names it.
        """
        if os.path.realpath(self.root) not in _locked:
            check_tree(self.root)

    # Reading

    def exists(self) -> bool:
        """Whether there is anything at the root."""
        try:
            return self.root.exists()
        except OSError as error:
            raise storage_error("list", self.address(), error) from error

    def entries(self) -> list[str]:
        """Return the names of files and folders directly under the root."""
        try:
            if self.exists() and not self.root.is_dir():
                raise NoStoreError(f"{self.root} is a file; name a folder")
            return sorted(path.name for path in self.root.iterdir()) if self.root.is_dir() else []
        except OSError as error:
            raise storage_error("list", self.address(), error) from error

    def listing(self, folder: str = "") -> dict[str, Stat]:
        """Return every file below a folder, without the lock and temporary files."""
        return {
            name: Stat(status.st_size, str(status.st_mtime_ns))
            for name, status in sorted(files_beneath(self.root, folder))
            for base in [name.rpartition("/")[2]]
            if not name.startswith(f"{TEMPORARY}/") and base != LOCK  # nor a temporary file on another disk
            if not (base.startswith(".") and base.endswith(TEMPORARY))
        }

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file below the root."""
        return {name: status.st_size for name, status in sorted(files_beneath(self.root))}

    def stat(self, name: str) -> Stat | None:
        """Return length and time of change of a file; None also for a name that cannot be one.

        Raises:
            StoreError: a link or a special file has the name, or its folder may not be searched.
        """
        if name.startswith("/") or ".." in name.split("/"):
            return None
        try:
            status = path_beneath(self.root, name).stat()
        except PermissionError as error:
            raise storage_error("list", self.address(name.rpartition("/")[0]), error) from error
        except (OSError, ValueError):
            return None
        return Stat(status.st_size, str(status.st_mtime_ns)) if stat.S_ISREG(status.st_mode) else None

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            OSError: it cannot be opened. StoreError: a link or a special file has the name.
        """
        return path_beneath(self.root, name).open("rb")

    # Writing

    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        """Write a file durably: fill a temporary one, and move it to its place; it is gone after any failure."""
        try:
            target, staging = path_beneath(self.root, name), path_beneath(self.root, TEMPORARY)
            for folder in (staging, target.parent):
                _make_folder(folder)
            temporary = staging / f"{name.replace('/', '-')}.{os.getpid()}"
            if staging.stat().st_dev != target.parent.stat().st_dev:  # only files of one disk can be renamed
                temporary = target.with_name(f".{target.name}{TEMPORARY}")
            try:
                with _create(temporary) as raw:
                    fill(raw)
                    raw.flush()
                    os.fsync(raw.fileno())
                    raw.seek(0)  # what was written is still in memory
                    record = FileRecord(hashlib.file_digest(raw, "sha256").hexdigest(), raw.tell())
                temporary.replace(target)
                if flush:
                    _flush(target.parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            return record
        except OSError as error:
            raise storage_error("write", self.address(name), error) from error

    def flush(self, names: Iterable[str]) -> None:
        """Flush the folders of the files, each once."""
        try:
            for folder in sorted({name.rpartition("/")[0] for name in names}):
                _flush(path_beneath(self.root, folder))
        except OSError as error:
            raise storage_error("write to", self.address(), error) from error

    def delete(self, name: str) -> None:
        """Remove a file or a folder; of a link the link alone."""
        try:
            if name:
                _remove(entry_beneath(self.root, name))
            else:
                shutil.rmtree(self.root, ignore_errors=not self.root.exists())
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", self.address(name), error) from error

    # Replacing

    def replace(self, source: str, target: str) -> None:
        """Rename a file."""
        try:
            with contextlib.suppress(FileNotFoundError):
                entry_beneath(self.root, source).replace(entry_beneath(self.root, target))
        except OSError as error:
            raise storage_error("replace", self.address(target), error) from error

    def folder_id(self, folder: str) -> str:
        """Return the inode: a folder keeps it when it is renamed."""
        try:
            return str(path_beneath(self.root, folder).stat().st_ino)
        except OSError as error:
            raise storage_error("read", self.address(folder), error) from error

    def replace_folder(self, source: str, target: str, source_id: str) -> None:
        """Exchange two folders and remove the old one."""
        try:
            new, current = (entry_beneath(self.root, name) for name in (source, target))
            if not current.exists():
                new.rename(current)
            elif self.folder_id(target) != source_id:
                _exchange(current, new)
            _flush(current.parent)
            for old in (new, _aside(current)):
                with contextlib.suppress(FileNotFoundError):
                    _remove(old)
        except OSError as error:
            raise storage_error("replace", self.address(target), error) from error

    # One writer

    def writer(self) -> str | None:
        """Return the process that holds the lock of the folder, without creating it or waiting for it.

        Raises:
            StoreError: the lock is a link or a special file.
        """
        with contextlib.suppress(OSError), path_beneath(self.root, LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _holder(file)
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Address]:
        """Hold the lock of the folder, and remove the temporary files of killed writers.

        The file system has to refuse it to a second file descriptor meanwhile.
        """
        try:
            _make_folder(self.root)
            file = self._open_lock()
        except OSError as error:
            raise storage_error("write to", self.address(), error) from error
        real = os.path.realpath(self.root)
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"{self.root} is being written by another run (process {_holder(file)}); wait for its end, "
                    "or choose another --out"
                ) from None
            except OSError as error:
                raise storage_error("lock", self.address(), error) from error
            with self._open_lock() as second:
                try:
                    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    pass
                else:
                    raise StoreError(
                        f"the file system of {self.root} grants the same lock twice (its flock does nothing), so two "
                        "runs could write this store at the same time; expected working file locks: mount it with "
                        "locks (Lustre: flock, NFS: without nolock), or build on a local disk or into an object store"
                    )
            self.check_contents()
            with contextlib.suppress(OSError):  # a full disk is freed under the lock; the number is only for messages
                file.truncate(0)
                file.write(str(os.getpid()).encode())
            _locked.add(real)
            with contextlib.suppress(StoreError):
                self.delete(TEMPORARY)
            try:
                yield self.root
            finally:
                with contextlib.suppress(StoreError):
                    self.delete(TEMPORARY)
                _locked.discard(real)

    def _open_lock(self) -> IO[bytes]:
        """Open the lock file, not through a link and without changing it."""
        try:
            return path_beneath(self.root, LOCK).open("a+b", buffering=0)
        except IsADirectoryError:
            raise refusal(self.root, LOCK, os.lstat(self.root / LOCK)) from None


def _make_folder(folder: Path) -> None:
    """Make a folder with its parents, and flush their names."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        _flush(folder.parent)


def _create(path: Path) -> BufferedRandom:
    """Open a new file; whatever had the name, such as a link, is removed and not opened."""
    try:
        return path.open("x+b")
    except FileExistsError:
        path.unlink()
        return path.open("x+b")


def _flush(folder: Path) -> None:
    """Flush the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if stat.S_ISDIR(path.lstat().st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


def _holder(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 32, 0).decode(errors="replace").strip() or "unknown"


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-old")


def _renameat2() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _exchange(first: Path, second: Path) -> None:
    """Exchange two folders, atomically where the system can (Linux ``renameat2``)."""
    renameat2 = _renameat2()
    if renameat2 is not None:
        if renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(first))
    aside = _aside(first)
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
