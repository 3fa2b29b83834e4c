"""Files below a folder, opened without following links.

An untrusted store may hold a link to any file of the reader's machine, or a named pipe that blocks its
reader. So files are opened folder by folder, each relative to a handle of the one before it, and anything but a file
or folder is refused by name.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreError, printable

MAX_DEPTH = 64
"""Folders inside each other; a store has six."""

PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
"""Open flag for a handle that needs no right to read what it names."""

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def check_name(root: Path, name: str) -> None:
    """Refuse a name that leads out of ``root``, as one from an untrusted manifest may.

    Raises:
        StoreError: it does.
    """
    if name.startswith("/") or ".." in name.split("/"):
        raise StoreError(f"{printable(repr(name))} is outside of {root}; expected names below it")


def open_beneath(root: Path, name: str, flags: int, mode: int = 0) -> int:
    """Return a descriptor of a file or folder below ``root``, whose own path may hold links; ``name`` may not.

    Args:
        root: the folder.
        name: relative to it; empty for the folder itself.
        flags: those of ``os.open``.
        mode: permissions of a file that is created.

    Raises:
        OSError: it cannot be opened. StoreError: the name leads out of ``root``, or through a link or special file; the
            message names it.
    """
    check_name(root, name)
    flags |= os.O_CLOEXEC
    try:
        if not name:
            return os.open(root, flags, mode)
        *folders, last = name.split("/")
        step = PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC
        opened = [os.open(root, step)]
        try:
            for folder in folders:  # each relative to the one before it
                opened.append(os.open(folder, step | os.O_NOFOLLOW, dir_fd=opened[-1]))
            descriptor = os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=opened[-1])
        finally:
            for each in opened:
                os.close(each)
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):  # a handle without the right to read may be one of a link
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return descriptor
    except OSError as error:
        if name and error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.ENXIO):
            _refuse_on_the_way(root, name)
        raise


def _refuse_on_the_way(root: Path, name: str) -> None:
    """Refuse the first name on the way that is a link or a special file; return where there is none.

    Raises:
        StoreError: such a name was found.
    """
    way = ""
    for part in name.split("/"):
        way = f"{way}/{part}" if way else part
        try:
            status = os.stat(f"{root}/{way}", follow_symlinks=False)  # noqa: PTH116 - a name may be no path
        except OSError:
            return
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise refusal(root, way, status)


def refusal(root: Path, name: str, status: os.stat_result) -> StoreError:
    """Describe a link or special file, and what to do about it."""
    place = printable(f"{root}/{name}")
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "not a file")
    if stat.S_ISLNK(status.st_mode):
        return StoreError(
            f"{place} is a link, which may lead to any file of this machine; expected files and folders alone: put "
            "what it leads to in its place, or remove it"
        )
    if stat.S_ISREG(status.st_mode):
        return StoreError(
            f"{place} is a hard link: the same file has another name outside of {printable(str(root))}; expected files "
            "of this folder alone: copy the folder"
        )
    return StoreError(f"{place} is {kind}; expected files and folders alone: remove it")


def regular(descriptor: int, root: Path, name: str) -> os.stat_result:
    """Return the status of an open file.

    Raises:
        IsADirectoryError: the descriptor is of a folder. StoreError: it is of a special file.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{root}/{name}")
        raise refusal(root, name, status)
    return status


def files_beneath(root: Path, folder: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file below a folder of ``root`` by its name relative to ``root``, in no order.

    Folders without the right to list them, and files that are deleted meanwhile, are skipped.

    Raises:
        StoreError: a link or special file is found.
    """
    if folder.count("/") >= MAX_DEPTH:
        raise StoreError(
            f"{printable(str(root))} has folders more than {MAX_DEPTH} levels deep; expected those of a store: remove "
            f"{printable(folder.partition('/')[0])}"
        )
    try:
        descriptor = open_beneath(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    folders: list[str] = []
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.append(name)
                elif stat.S_ISREG(status.st_mode):
                    yield name, status
                else:
                    raise refusal(root, name, status)
    finally:
        os.close(descriptor)
    for each in folders:
        yield from files_beneath(root, each)


def check_tree(root: Path) -> None:
    """Refuse links, special files and files that have names outside of ``root`` as well.

    Raises:
        StoreError: such a file was found; the message names it.
    """
    linked: dict[tuple[int, int], tuple[int, str, os.stat_result]] = {}
    for name, status in files_beneath(root):
        if status.st_nlink > 1:
            key = status.st_dev, status.st_ino
            count, first, _ = linked.get(key, (0, name, status))
            linked[key] = count + 1, min(first, name), status
    for count, name, status in linked.values():
        if count < status.st_nlink:
            raise refusal(root, name, status)
