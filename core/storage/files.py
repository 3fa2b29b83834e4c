"""Objects of a storage as files, for libraries that open files themselves: Arrow and DuckDB."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyarrow.fs import FSSpecHandler, PyFileSystem

from .base import Stat, Storage

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset


def parquet_files(storage: Storage, names: Iterable[str], schema: pa.Schema) -> "arrow_dataset.Dataset":
    """Return the rows of some Parquet files as an Arrow dataset; nothing is read yet.

    The column ``store`` is the first folder in a file's name.
    """
    import pyarrow.dataset as arrow_dataset  # noqa: PLC0415 - it imports pandas, which no other start of ours needs

    stores, schema = pa.schema([("store", pa.string())]), schema.append(pa.field("store", pa.string()))
    paths = [storage.address(name) if storage.remote else str(storage.local_path(name)) for name in names]
    if not paths:
        return arrow_dataset.dataset(schema.empty_table())
    return arrow_dataset.dataset(
        paths,
        schema=schema,
        format="parquet",
        filesystem=PyFileSystem(FSSpecHandler(StorageFiles(storage))) if storage.remote else None,
        partitioning=arrow_dataset.DirectoryPartitioning(stores, segment_encoding="none"),
        partition_base_dir=storage.address(),
    )


class StorageFiles(AbstractFileSystem):
    """A read-only fsspec file system over one storage; paths are the addresses of its objects."""

    cachable = False

    def __init__(self, storage: Storage) -> None:
        """Wrap ``storage``."""
        super().__init__()
        self._storage = storage
        self._root = storage.address().rstrip("/")
        self.protocol = self._root.partition("://")[0]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path

    def unstrip_protocol(self, name: str) -> str:
        """Return the path: it has its protocol already."""
        return name

    def _name(self, path: str) -> str:
        whole = path if "://" in path else f"{self.protocol}://{path}"
        if whole.rstrip("/") == self._root:
            return ""
        if not whole.startswith(f"{self._root}/"):
            raise FileNotFoundError(2, "No such object", path)
        return whole.removeprefix(f"{self._root}/")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Describe an object or a folder."""
        name = self._name(path)
        stat = self._storage.stat(name) if name else None
        if stat is None and not self._storage.listing(name):
            raise FileNotFoundError(2, "No such object", path)
        return self._described(path, stat)

    @staticmethod
    def _described(path: str, stat: Stat | None) -> dict[str, Any]:
        return {"name": path, "size": stat.bytes if stat else 0, "type": "file" if stat else "directory"}

    def modified(self, path: str) -> datetime:
        """Return a time that differs between versions of an object; DuckDB uses it to detect changes."""
        stat = self._storage.stat(self._name(path))
        return datetime.fromtimestamp(crc32(stat.changed.encode()) if stat else 0, UTC)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List the objects and folders directly below a folder."""
        folder = self._name(path)
        beginning = f"{folder}/" if folder else ""
        below = {name.removeprefix(beginning): stat for name, stat in self._storage.listing(folder).items()}
        direct = {part.split("/")[0]: None if "/" in part else stat for part, stat in below.items()}
        listed = [self._described(self._storage.address(beginning + name), stat) for name, stat in direct.items()]
        return listed if detail else [each["name"] for each in listed]

    def glob(self, path: str, maxdepth: int | None = None, **_: Any) -> Any:
        """Return the addresses that match a pattern, in which ``*`` and ``?`` match anything but a slash."""
        del maxdepth
        pattern = self._name(path)
        folder = re.split(r"[*?]", pattern)[0].rpartition("/")[0]
        marks = {r"\*": "[^/]*", r"\?": "[^/]"}
        expression = re.sub(r"\\[*?]", lambda mark: marks[mark[0]], re.escape(pattern))
        return [self._storage.address(name) for name in self._storage.listing(folder) if re.fullmatch(expression, name)]

    def _open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> Any:
        if mode != "rb":
            raise PermissionError(1, "This file system is read-only", path)
        return self._storage.open(self._name(path))
