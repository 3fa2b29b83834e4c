"""One step that replaces a folder and objects beside it: after a kill at any change, all is old or becomes all new."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pivot.core.errors import StoreError
from pivot.core.storage import Storage
from pivot.core.storage.commit import COMMIT, JOURNAL, Step, bind, refuse_interrupted, roll_forward
from pivot.tests.core.faults import Fate, Killed, MortalStorage
from pivot.tests.core.memory import MemoryStorage

OLD = {"rest": b"", **dict.fromkeys(("dataset/a/0", "dataset/b", "labels/v1/0", "run", "manifest"), b"old")}
NEW = {"rest": b"", **dict.fromkeys(("dataset/a/0", "dataset/c/1", "run", "manifest"), b"new")}
STAGED = ".dataset-v2"

Make = Callable[[Path, Fate], Storage]
BACKENDS: dict[str, Make] = {"local": MortalStorage, "memory": lambda root, fate: MemoryStorage(fate)}


def _content(storage: Storage) -> dict[str, bytes]:
    return {name: storage.read_bytes(name) for name in storage.listing()}


def _objection(step: Step) -> str | None:
    """Accept the names of these tests alone."""
    allowed = {STAGED, "dataset", "run", "manifest", "labels/v1"}
    strange = {step.source, step.target, *step.objects, *step.obsolete} - allowed
    return f"it names {min(strange)!r}" if strange else None


def _finish(storage: Storage) -> bool:
    """Do what the next writer does first."""
    with storage.lock():
        return roll_forward(storage, _objection)


def _replace(storage: Storage) -> None:
    """Prepare and make the step, from all old to all new."""
    storage.delete(COMMIT)
    for name, content in NEW.items():
        folder, _, rest = name.partition("/")
        if folder == "dataset":
            storage.write_bytes(f"{STAGED}/{rest}", content)
        elif OLD[name] != content:
            storage.write_bytes(f"{COMMIT}/{name}", content)
    bind(storage, (STAGED, "dataset"), ("run", "manifest"), ["labels/v1"])
    roll_forward(storage, _objection)


def _old(make: Make, root: Path) -> tuple[Storage, Fate]:
    """A storage with the old content, and the fault injection that ends it from now on."""
    fate = Fate()
    storage = make(root, fate)
    for name, content in OLD.items():
        storage.write_bytes(name, content)
    fate.changes.clear()
    return storage, fate


@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_before_any_change_it_is_all_old_or_becomes_all_new(backend: str, tmp_path: Path) -> None:
    storage, fate = _old(BACKENDS[backend], tmp_path / "undisturbed")
    _replace(storage)
    assert _content(storage) == NEW
    outcomes = set()
    for moment in range(1, len(fate.changes) + 1):
        storage, fate = _old(BACKENDS[backend], tmp_path / f"killed {moment}")
        fate.at = moment
        with pytest.raises(Killed):
            _replace(storage)
        bound = storage.stat(JOURNAL) is not None
        # Further kills while the next writer finishes it change nothing.
        for again in range(1, 100):
            fate.at, fate.changes[:] = again, []
            try:
                _finish(storage)
                break
            except Killed:
                continue
        fate.at = None
        content = _content(storage)
        seen = {name: content[name] for name in content if not name.startswith(".")}
        # A kill after the last move of the step leaves the journal or nothing.
        assert seen in (OLD, NEW), fate.changes
        assert seen == NEW or not bound
        outcomes.add(seen == NEW)
        _replace(storage)
        assert _content(storage) == NEW
    assert outcomes == {False, True}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_is_not_finished_under_another_writer(backend: str, tmp_path: Path) -> None:
    storage, _ = _old(BACKENDS[backend], tmp_path)
    storage.write_bytes(f"{STAGED}/x", b"new")
    bind(storage, (STAGED, "dataset"), (), [])
    with storage.lock(), pytest.raises(StoreError, match="is being written by another run"):
        _finish(storage)
    with pytest.raises(StoreError, match=r"between two versions .*finish it with: pivot relabel here"):
        refuse_interrupted(storage, "pivot relabel here")
    assert _finish(storage) is True
    refuse_interrupted(storage, "pivot relabel here")
    assert storage.read_bytes("dataset/x") == b"new" and list(storage.listing("dataset")) == ["dataset/x"]
