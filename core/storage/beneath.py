"""Paths below a folder that no link or special file is part of.

An untrusted store may hold a link to any file of the reader's machine, or a named pipe that blocks its reader. So every
part of a name is looked at before a file is opened, and anything but a file or folder is refused by name.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreError, printable

MAX_DEPTH = 64
"""Folders inside each other; a store has six."""

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def path_beneath(root: Path, name: str) -> Path:
    """Return the path of a file or folder below ``root``, whose own path may hold links; ``name`` may not.

    Args:
        root: the folder.
        name: relative to it; empty for the folder itself.

    Raises:
        OSError: a folder on the way may not be searched. StoreError: the name leads out of ``root``, as one from an
            untrusted manifest may, or through a link or special file; the message names it.
    """
    _check_name(root, name)
    parts, path = name.split("/") if name else [], root
    for index, part in enumerate(parts, 1):
        path /= part
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            break
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise refusal(root, "/".join(parts[:index]), status)
    return root / name


def entry_beneath(root: Path, name: str) -> Path:
    """Return the path of a name below ``root`` that is to be moved or removed: itself it may be a link."""
    _check_name(root, name)
    folder, _, base = name.rpartition("/")
    return path_beneath(root, folder) / base


def _check_name(root: Path, name: str) -> None:
    if name.startswith("/") or ".." in name.split("/"):
        raise StoreError(f"{printable(repr(name))} is outside of {root}; expected names below it")


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
        entries = list(os.scandir(path_beneath(root, folder)))
    except OSError:
        return
    for entry in entries:
        name = f"{folder}/{entry.name}" if folder else entry.name
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            yield from files_beneath(root, name)
        elif stat.S_ISREG(status.st_mode):
            yield name, status
        else:
            raise refusal(root, name, status)


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
