"""Foreign JSON: a file of any shape or size gives one error that names it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import StoreError
from pivot.core.storage import LocalStorage
from pivot.core.storage.base import MAX_JSON_BYTES, Receipt
from pivot.core.storage.commit import JOURNAL
from pivot.datasets.store.store import finish_relabel
from pivot.tests.core.canary import Canary

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
        ([], "expected an object with the fields"),
        ({"more": 1}, "expected an object with the fields"),
        ({"source": 1}, "'source' is not a text"),
        ({"mark": None}, "'mark' is not a text"),
        ({"objects": "run.json"}, "'objects' is not a list of texts"),
        ({"obsolete": [["labels/v1"]]}, "'obsolete' is not a list of texts"),
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
    store = Canary(tmp_path, ("dataset/file", ".dataset-v2/file", "labels/v1/file", "run.json", ".commit/run.json"))
    storage = _put(tmp_path, JOURNAL, RELABEL | change if isinstance(change, dict) else change)
    with pytest.raises(StoreError, match=rf"journal\.json was not written by this program: .*{named}.*nothing was"):
        finish_relabel(storage)
    (tmp_path / JOURNAL).unlink()
    store.check(times=False)


def test_the_journal_of_a_relabel_is_accepted(tmp_path: Path) -> None:
    Canary(tmp_path, ("dataset/old", ".dataset-v2/new", "labels/v1/file", ".commit/run.json"))
    inode = (tmp_path / ".dataset-v2").stat().st_ino
    storage = _put(tmp_path, JOURNAL, RELABEL | {"mark": str(inode)})
    assert finish_relabel(storage)
    assert list(storage.listing()) == ["dataset/new", "run.json"]


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


RECORD = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize("record", [[], {"sha256": 1, "bytes": 1}, {"sha256": "0", "bytes": "1"}])
def test_a_receipt_with_other_types_is_none(record: Any, tmp_path: Path) -> None:
    storage = _put(tmp_path, "receipt.json", {"inputs": "", "files": {"a": record}, "facts": {}})
    assert Receipt.read(storage, "receipt.json") is None
