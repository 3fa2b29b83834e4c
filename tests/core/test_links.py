"""Links, pipes, sockets, devices and foreign JSON in a store: readers name them, and nothing outside is touched."""

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import StoreError
from pivot.core.storage import LocalStorage, beneath
from pivot.core.storage.base import MAX_JSON_BYTES
from pivot.core.storage.commit import JOURNAL
from pivot.core.storage.local import LOCK, TEMPORARY
from pivot.datasets.store.store import finish_relabel
from pivot.tests.core.hostile_makers import digest

CONTENT = b"rows"
FILES = ("run.json", "manifest.json", "labels/v1/env/00000.parquet", "dataset/env/train-00000.parquet", LOCK)
FOLDERS = ("labels", "labels/v1", "labels/v1/env", "dataset", ".receipts", ".commit", TEMPORARY, "x", "x/0001")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file in every place of a store."""
    root = tmp_path / "store"
    for name in (*FILES, *(f"{folder}/file" for folder in FOLDERS)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(CONTENT)
    return root


def _filled(folder: Path, names: Iterable[str]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"precious {name}".encode())
    return folder


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A folder outside with files of the same names as in a store; no command may change it."""
    canary = _filled(tmp_path / "outside", (*FILES, "file", "journal.json"))
    before = digest(canary)
    yield canary
    assert digest(canary) == before


def _replace(path: Path, canary: Path) -> None:
    """Put a link to the canary in the place of a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
        path.symlink_to(canary)
    else:
        path.unlink(missing_ok=True)
        path.symlink_to(canary / "file")


OPERATIONS: dict[str, Callable[[LocalStorage, str], object]] = {
    "open": lambda storage, name: storage.open(name),
    "read": lambda storage, name: storage.read_bytes(name),
    "record": lambda storage, name: storage.record(name),
    "stat": lambda storage, name: storage.stat(name),
    "path": lambda storage, name: storage.local_path(name),
    "list": lambda storage, name: storage.listing(name),
    "write": lambda storage, name: storage.write_bytes(f"{name}/file", b"new"),
    "delete": lambda storage, name: storage.delete(f"{name}/file"),
    "replace": lambda storage, name: storage.replace("run.json", f"{name}/file"),
    "move": lambda storage, name: storage.replace(f"{name}/file", "moved"),
    "mark": lambda storage, name: storage.folder_id(name),
    "replace folder": lambda storage, name: storage.replace_folder("labels", f"{name}/file", "0"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("link", ["dataset", "dataset/env"])
def test_no_operation_goes_through_a_link(operation: str, link: str, root: Path, canary: Path) -> None:
    _replace(root / link, canary)
    with pytest.raises(StoreError, match=rf"{link} is a link, .*put what it leads to in its place"):
        OPERATIONS[operation](LocalStorage(root), f"{link}/env" if operation == "list" else link)


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_link_in_any_place_is_found_by_one_look(name: str, root: Path, canary: Path) -> None:
    LocalStorage(root).check_contents()
    _replace(root / name, canary)
    for attempt in (LocalStorage(root).check_contents, LocalStorage(root).lock().__enter__):
        with pytest.raises(StoreError, match=rf"{name} is a link"):
            attempt()


def _socket(path: Path) -> None:
    place = Path.cwd()
    os.chdir(path.parent)  # addresses of sockets are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(place)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may make devices")


SPECIAL: dict[str, Callable[[Path], None]] = {"named pipe": os.mkfifo, "socket": _socket, "device": _device}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["run.json", "labels/v1/env/00000.parquet", LOCK, ".commit/journal.json"])
def test_nothing_waits_for_a_special_file(kind: str, name: str, root: Path) -> None:
    (root / name).unlink(missing_ok=True)
    SPECIAL[kind](root / name)
    storage = LocalStorage(root)
    attempts = [storage.check_contents, storage.lock().__enter__, lambda: storage.read_bytes(name)]
    if name == LOCK:
        attempts.append(storage.writer)
    for attempt in attempts:
        with pytest.raises(StoreError, match=rf"{name} is a {kind}; .*remove it"):
            attempt()


def test_a_folder_in_the_place_of_the_lock_is_refused(root: Path) -> None:
    (root / LOCK).unlink()
    (root / LOCK).mkdir()
    with pytest.raises(StoreError, match=rf"{LOCK} is a folder"), LocalStorage(root).lock():
        pass


@pytest.mark.parametrize("name", ["run.json", "labels/v1/env/00000.parquet", LOCK])
def test_a_hard_link_to_outside_is_refused_and_one_within_is_not(name: str, root: Path, canary: Path) -> None:
    os.link(root / "dataset/file", root / "labels/same")
    LocalStorage(root).check_contents()
    (root / name).unlink()
    os.link(canary / "file", root / name)
    for attempt in (LocalStorage(root).check_contents, LocalStorage(root).lock().__enter__):
        with pytest.raises(StoreError, match=rf"{name} is a hard link: .*copy the folder"):
            attempt()


def test_a_planted_name_of_a_temporary_file_is_not_written_through(root: Path, canary: Path) -> None:
    planted = root / TEMPORARY / f"labels-v1-new.{os.getpid()}"
    for plant in (planted.symlink_to, lambda target: os.link(target, planted)):
        plant(canary / "file")
        LocalStorage(root).write_bytes("labels/v1/new", b"new")
        assert (root / "labels/v1/new").read_bytes() == b"new"
        assert (canary / "file").read_bytes() == b"precious file"


# Links that users make on purpose


def test_the_root_and_what_is_above_it_may_be_links(root: Path, tmp_path: Path) -> None:
    (tmp_path / "to the store").symlink_to(root)
    (tmp_path / "above").symlink_to(tmp_path)
    for path in (tmp_path / "to the store", tmp_path / "above" / "store", tmp_path / "above" / "to the store"):
        storage = LocalStorage(path)
        storage.check_contents()
        with storage.lock():
            storage.write_bytes("labels/v1/new", b"new")
        assert storage.read_bytes("labels/v1/new") == b"new"
        assert (root / "labels/v1/new").read_bytes() == b"new"


@pytest.mark.timeout(300)
def test_folders_without_end_are_refused(root: Path) -> None:
    place = root
    for _ in range(beneath.MAX_DEPTH + 2):
        place /= "deep"
    place.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"more than 64 levels deep; .*remove deep"):
        LocalStorage(root).check_contents()


RELABEL = {
    "source": ".dataset-v2",
    "target": "dataset",
    "mark": "1",
    "objects": ["run.json", "pivot.duckdb", "manifest.json"],
    "obsolete": ["labels/v1", "prompts/sokoban/00000-labels-v1.parquet"],
}


def _put(root: Path, name: str, value: Any) -> LocalStorage:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(value))
    return LocalStorage(root)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ([], "found it of another form"),
        ({"more": 1}, "found more of another form"),
        ({"source": 1}, "found source of another form"),
        ({"mark": None}, "found mark of another form"),
        ({"objects": "run.json"}, "found objects of another form"),
        ({"obsolete": [["labels/v1"]]}, "found obsolete.0 of another form"),
        ({"source": "../outside"}, "which is not a name below the store"),
        ({"source": "/outside"}, "which is not a name below the store"),
        ({"mark": "a\n../b"}, "which is not a name below the store"),
        ({"obsolete": ["labels/\x1b[2J"]}, r"'labels/\\x1b\[2J', which is not a name"),
        ({"source": "episodes"}, "it moves 'episodes' to 'dataset'"),
        ({"target": "labels"}, "it moves '.dataset-v2' to 'labels'"),
        ({"objects": ["labels/v1"]}, "it replaces 'labels/v1'"),
        ({"obsolete": ["episodes"]}, "it removes 'episodes'"),
        ({"obsolete": ["labels"]}, "it removes 'labels'"),
        ({"obsolete": ["labels/v2"]}, "it removes 'labels/v2'"),
        ({"obsolete": ["calls/sokoban/00000.parquet"]}, "it removes 'calls/sokoban/00000.parquet'"),
    ],
)
def test_a_journal_is_checked_before_anything_moves(change: Any, named: str, tmp_path: Path) -> None:
    _filled(tmp_path, ("dataset/file", ".dataset-v2/file", "labels/v1/file", "run.json", ".commit/run.json"))
    storage = _put(tmp_path, JOURNAL, RELABEL | change if isinstance(change, dict) else change)
    before = digest(tmp_path)
    with pytest.raises(StoreError, match=rf"journal\.json was not written by this program: .*{named}.*nothing was"):
        finish_relabel(storage)
    assert digest(tmp_path) == before


def test_the_journal_of_a_relabel_is_accepted(tmp_path: Path) -> None:
    _filled(tmp_path, ("dataset/old", ".dataset-v2/new", "labels/v1/file", ".commit/run.json"))
    storage = _put(tmp_path, JOURNAL, RELABEL | {"mark": str((tmp_path / ".dataset-v2").stat().st_ino)})
    assert finish_relabel(storage) and list(storage.listing()) == ["dataset/new", "run.json"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 10_000_000, "nested too deeply"),
        (b'{"a":' * 5_000_000, "nested too deeply"),
        (b" " * (MAX_JSON_BYTES + 1), "more than 32 MB"),
    ],
    ids=["lists", "objects", "long"],
)
def test_json_without_end_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(StoreError, match=rf"manifest\.json is not valid JSON \({problem}\)"):
        LocalStorage(tmp_path).read_json("manifest.json")
