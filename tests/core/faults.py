"""Faults at any operation on a storage, in this process: a kill without a process to kill, a disk that refuses."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pivot.core.storage
import pytest
from pivot.core.storage import FileRecord, LocalStorage
from pivot.core.storage.base import Fill


class Killed(BaseException):
    """The process is dead: no code catches this, and no later change reaches the storage."""


class Fate:
    """Counts the changes of all storages, and makes the ``at``-th and all later ones fail."""

    def __init__(self, at: int | None = None, fault: BaseException | None = None) -> None:
        self.at, self.fault = at, fault or Killed()
        self.changes: list[str] = []
        """The attempted changes in order; with a fault, the last one is the change that failed."""
        self._one_at_a_time = threading.Lock()

    def decide(self, change: str) -> None:
        """Count a change; raise the fault if it is the one to fail."""
        with self._one_at_a_time:
            if len(self.changes) != self.at:
                self.changes.append(change)
            if len(self.changes) == self.at:
                raise self.fault


class MortalStorage(LocalStorage):
    """A local folder whose changes a :class:`Fate` counts and stops."""

    def __init__(self, root: Path, fate: Fate) -> None:
        super().__init__(root)
        self.fate = fate

    def write(self, name: str, fill: Fill, *, flush: bool = True) -> FileRecord:
        self.fate.decide(f"write {name}")
        return super().write(name, fill, flush=flush)

    def flush(self, names: Iterable[str]) -> None:
        names = list(names)
        self.fate.decide(f"flush {names}")
        super().flush(names)

    def delete(self, name: str) -> None:
        self.fate.decide(f"delete {name}")
        super().delete(name)

    def replace(self, source: str, target: str) -> None:
        self.fate.decide(f"replace {target}")
        super().replace(source, target)

    def replace_folder(self, source: str, target: str, source_id: str) -> None:
        self.fate.decide(f"replace folder {target}")
        super().replace_folder(source, target, source_id)


@contextlib.contextmanager
def mortal(fate: Fate) -> Iterator[Fate]:
    """Use ``fate`` in every storage that this process opens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pivot.core.storage, "LocalStorage", lambda root: MortalStorage(root, fate))
        yield fate
