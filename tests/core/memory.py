"""A storage without files that can do only what an object store can, to show that PIVOT needs no more."""

import contextlib
import hashlib
import io
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from pivot.core.errors import StoreError
from pivot.core.storage import Address, FileRecord, Stat, Storage, Url
from pivot.core.storage.base import Fill
from pivot.tests.core.faults import Fate


class MemoryStorage(Storage):
    """Puts, gets, deletes and lists whole objects; nothing is renamed, and a folder is only a prefix."""

    def __init__(self, fate: Fate | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.fate = fate or Fate()
        self._writer = threading.Lock()

    def address(self, name: str = "") -> str:
        return f"memory://store/{name}"

    def local_path(self, name: str = "") -> Path:
        raise StoreError(f"{self.address(name)} is not a file of this machine; copy the store to a local folder")

    def check_contents(self) -> None:
        """Do nothing: there are only objects."""

    def exists(self) -> bool:
        return bool(self.objects)

    def entries(self) -> list[str]:
        return sorted({name.split("/")[0] for name in self.objects})

    def listing(self, folder: str = "") -> dict[str, Stat]:
        beginning = f"{folder}/" if folder else ""
        return {name: self._stat(name) for name in sorted(self.objects) if name.startswith(beginning)}

    def _stat(self, name: str) -> Stat:
        content = self.objects[name]
        return Stat(len(content), hashlib.md5(content).hexdigest())

    def stat(self, name: str) -> Stat | None:
        return self._stat(name) if name in self.objects else None

    def open(self, name: str) -> IO[bytes]:
        if name not in self.objects:
            raise FileNotFoundError(2, "No such object", name)
        return io.BytesIO(self.objects[name])

    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        sink = io.BytesIO()
        fill(sink)
        self._put(name, sink.getvalue())
        return self.record(name)

    def _put(self, name: str, content: bytes) -> None:
        self.fate.decide(f"put {name}")
        self.objects[name] = content

    def flush(self, names: Iterable[str]) -> None:
        """Nothing is left to do: a put is durable."""

    def delete(self, name: str) -> None:
        for each in [name, *self.listing(name)]:
            if each in self.objects:
                self.fate.decide(f"delete {each}")
                del self.objects[each]

    def replace(self, source: str, target: str) -> None:
        if source in self.objects:
            self._put(target, self.objects[source])
            self.delete(source)

    def folder_id(self, folder: str) -> str:
        """The content of the store: after a kill, half of it may have been moved."""
        return "\n".join(name.removeprefix(f"{folder}/") for name in self.listing(folder))

    def replace_folder(self, source: str, target: str, source_id: str) -> None:
        names = source_id.split("\n")
        for name in names:
            if f"{source}/{name}" in self.objects:
                self._put(f"{target}/{name}", self.objects[f"{source}/{name}"])
        for name in sorted(self.listing(target).keys() - {f"{target}/{name}" for name in names}):
            self.delete(name)
        self.delete(source)

    def writer(self) -> str | None:
        return "unknown" if self._writer.locked() else None

    @contextlib.contextmanager
    def lock(self) -> Iterator[Address]:
        if not self._writer.acquire(blocking=False):
            raise StoreError(f"{self.address()} is being written by another run")
        try:
            yield Url("memory://store")
        finally:
            self._writer.release()
