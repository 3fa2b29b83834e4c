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
from pathlib import Path
from typing import IO

from ..errors import NoStoreError, StoreError
from .base import TEMPORARY, Address, FileRecord, Fill, Stat, Storage, storage_error
from .beneath import PATH_ONLY, check_name, check_tree, files_beneath, open_beneath, refusal, regular

LOCK = ".lock"

_RENAME_EXCHANGE = 2
_UNBLOCKED = os.O_NONBLOCK | os.O_NOCTTY
"""Flags with which opening a pipe or a terminal has no effect: neither a wait nor a new controlling terminal."""

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
        if name:
            with contextlib.suppress(OSError):
                os.close(open_beneath(self.root, name, PATH_ONLY))
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
            descriptor = open_beneath(self.root, name, PATH_ONLY)
        except PermissionError as error:
            raise storage_error("list", self.address(name.rpartition("/")[0]), error) from error
        except (OSError, ValueError):
            return None
        try:
            status = regular(descriptor, self.root, name)
            return Stat(status.st_size, str(status.st_mtime_ns))
        except IsADirectoryError:
            return None
        finally:
            os.close(descriptor)

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            OSError: it cannot be opened. StoreError: a link or a special file has the name.
        """
        descriptor = open_beneath(self.root, name, os.O_RDONLY | _UNBLOCKED)
        try:
            regular(descriptor, self.root, name)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    # Writing

    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        """Write a file durably: fill a temporary one, and move it to its place; it is gone after any failure."""
        check_name(self.root, name)
        folder, _, base = name.rpartition("/")
        try:
            with self._folder(TEMPORARY, make=True) as staging, self._folder(folder, make=True) as target:
                temporary = _Entry(staging, f"{name.replace('/', '-')}.{os.getpid()}")
                if os.fstat(staging).st_dev != os.fstat(target).st_dev:  # only files of one disk can be renamed
                    temporary = _Entry(target, f".{base}{TEMPORARY}")
                try:
                    with os.fdopen(_create(temporary), "w+b") as raw:
                        fill(raw)
                        raw.flush()
                        os.fsync(raw.fileno())
                        raw.seek(0)  # what was written is still in memory
                        record = FileRecord(hashlib.file_digest(raw, "sha256").hexdigest(), raw.tell())
                    os.replace(temporary.name, base, src_dir_fd=temporary.folder, dst_dir_fd=target)
                    if flush:
                        os.fsync(target)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary.name, dir_fd=temporary.folder)
                    raise
                return record
        except OSError as error:
            raise storage_error("write", self.address(name), error) from error

    @contextlib.contextmanager
    def _folder(self, name: str, *, make: bool = False) -> Iterator[int]:
        """Open a folder, to read or change what is in it; ``make`` makes it with its parents, and flushes the names."""
        try:
            descriptor = open_beneath(self.root, name, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            if not make:
                raise
            missing = [each for each in (self.root, *self.root.parents) if not each.exists()]
            self.root.mkdir(parents=True, exist_ok=True)
            for each in missing:
                parent = os.open(each.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(parent)
                finally:
                    os.close(parent)
            made = ""
            for part in name.split("/") if name else ():
                with self._folder(made) as above, contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
                    os.fsync(above)
                made = f"{made}/{part}" if made else part
            descriptor = open_beneath(self.root, name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def flush(self, names: Iterable[str]) -> None:
        """Flush the folders of the files, each once."""
        try:
            for folder in sorted({name.rpartition("/")[0] for name in names}):
                with self._folder(folder) as descriptor:
                    os.fsync(descriptor)
        except OSError as error:
            raise storage_error("write to", self.address(), error) from error

    def delete(self, name: str) -> None:
        """Remove a file or a folder; of a link the link alone."""
        check_name(self.root, name)
        folder, _, base = name.rpartition("/")
        try:
            if not name:
                shutil.rmtree(self.root, ignore_errors=not self.root.exists())
                return
            with self._folder(folder) as above:
                _remove(_Entry(above, base))
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", self.address(name), error) from error

    # Replacing

    @contextlib.contextmanager
    def _entries(self, *names: str) -> Iterator[list["_Entry"]]:
        with contextlib.ExitStack() as stack:
            parted = [name.rpartition("/") for name in names]
            yield [_Entry(stack.enter_context(self._folder(folder)), base) for folder, _, base in parted]

    def replace(self, source: str, target: str) -> None:
        """Rename a file."""
        try:
            with contextlib.suppress(FileNotFoundError), self._entries(source, target) as (old, new):
                os.replace(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)
        except OSError as error:
            raise storage_error("replace", self.address(target), error) from error

    def folder_id(self, folder: str) -> str:
        """Return the inode: a folder keeps it when it is renamed."""
        try:
            with self._folder(folder) as descriptor:
                return str(os.fstat(descriptor).st_ino)
        except OSError as error:
            raise storage_error("read", self.address(folder), error) from error

    def replace_folder(self, source: str, target: str, source_id: str) -> None:
        """Exchange two folders and remove the old one; of a link to it the link alone."""
        try:
            with self._entries(source, target) as (new, current):
                if not current.exists():
                    os.rename(new.name, current.name, src_dir_fd=new.folder, dst_dir_fd=current.folder)
                elif self.folder_id(target) != source_id:
                    _exchange(current, new)
                os.fsync(current.folder)
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
        try:
            descriptor = open_beneath(self.root, LOCK, os.O_RDONLY | _UNBLOCKED)
        except OSError:
            return None
        try:
            regular(descriptor, self.root, LOCK)
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Address]:
        """Hold the lock of the folder, and remove the temporary files of killed writers.

        The file system has to refuse it to a second file descriptor meanwhile.
        """
        try:
            with self._folder("", make=True):
                descriptor = self._open_lock()
        except OSError as error:
            raise storage_error("write to", self.address(), error) from error
        real = os.path.realpath(self.root)
        try:
            regular(descriptor, self.root, LOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"{self.root} is being written by another run (process {_holder(descriptor)}); wait for its end, "
                    "or choose another --out"
                ) from None
            except OSError as error:
                raise storage_error("lock", self.address(), error) from error
            second = self._open_lock()
            try:
                fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                raise StoreError(
                    f"the file system of {self.root} grants the same lock twice (its flock does nothing), so two runs "
                    "could write this store at the same time; expected working file locks: mount it with locks "
                    "(Lustre: flock, NFS: without nolock), or build on a local disk or into an object store"
                )
            finally:
                os.close(second)
            self.check_contents()
            with contextlib.suppress(OSError):  # a full disk is freed under the lock; the number is only for messages
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            _locked.add(real)
            with contextlib.suppress(StoreError):
                self.delete(TEMPORARY)
            try:
                yield self.root
            finally:
                with contextlib.suppress(StoreError):
                    self.delete(TEMPORARY)
                _locked.discard(real)
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        """Open the lock file, not through a link and without changing it."""
        try:
            return open_beneath(self.root, LOCK, os.O_RDWR | os.O_CREAT | _UNBLOCKED, 0o666)
        except IsADirectoryError:
            raise refusal(self.root, LOCK, os.lstat(self.root / LOCK)) from None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name in an open folder, which is how system calls reach it without following links."""

    folder: int
    name: str

    def exists(self) -> bool:
        try:
            os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True


def _create(entry: _Entry) -> int:
    """Open a new file; whatever had the name, such as a link, is removed and not opened."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(entry.name, flags, 0o666, dir_fd=entry.folder)
    except FileExistsError:
        os.unlink(entry.name, dir_fd=entry.folder)
        return os.open(entry.name, flags, 0o666, dir_fd=entry.folder)


def _remove(entry: _Entry) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    status = os.stat(entry.name, dir_fd=entry.folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(entry.name, dir_fd=entry.folder)
    else:
        os.unlink(entry.name, dir_fd=entry.folder)


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"


def _aside(folder: _Entry) -> _Entry:
    return _Entry(folder.folder, f".{folder.name}-old")


def _renameat2() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _exchange(first: _Entry, second: _Entry) -> None:
    """Exchange two folders, atomically where the system can (Linux ``renameat2``)."""
    renameat2 = _renameat2()
    if renameat2 is not None:
        names = os.fsencode(first.name), os.fsencode(second.name)
        if renameat2(first.folder, names[0], second.folder, names[1], _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), first.name)
    aside = _aside(first)
    os.rename(first.name, aside.name, src_dir_fd=first.folder, dst_dir_fd=aside.folder)
    os.rename(second.name, first.name, src_dir_fd=second.folder, dst_dir_fd=first.folder)
    os.rename(aside.name, second.name, src_dir_fd=aside.folder, dst_dir_fd=second.folder)
