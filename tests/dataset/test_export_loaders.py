"""The loader of ms-swift reads the chats of the export ``analyzer``: run by ``make test WHAT=exports``.

Every row has to arrive, in order, with the texts of the export and with its pictures, compared by their pixels.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.core.images import decode

ENVIRONMENTS = os.environ.get("PIVOT_LOADERS", "")
"""Folder with a virtual environment per trainer."""
pytestmark = pytest.mark.skipif(not ENVIRONMENTS, reason="needs the trainers: make test WHAT=exports")

Row = dict[str, Any]


def load(trainer: str, folder: Path) -> list[Row]:
    """Return the rows of an export as a trainer reads them."""
    out = folder.parent / f"{trainer}.json"
    script = Path(__file__).parent / "loaders" / f"{trainer}_rows.py"
    python = Path(ENVIRONMENTS) / trainer / "bin" / "python"
    caches = {"HF_HOME": folder.parent / "hf", "MODELSCOPE_CACHE": folder.parent / "modelscope"}
    fixed = {"HF_HUB_OFFLINE": "1", "DISABLE_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1"}
    env = os.environ | fixed | {name: str(path) for name, path in caches.items()}
    command = [python, script, folder, out]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=out.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


def stored(folder: Path, kind: str, side: str) -> list[Row]:
    """Return the rows of one split, in the order of the names of their files."""
    paths = sorted((folder / kind).glob(f"*/{side}/*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def digests(row: Row) -> list[str]:
    return [hashlib.sha256(decode(image["bytes"]).tobytes()).hexdigest() for image in row["images"]]


def by_content(rows: list[Row]) -> list[str]:
    """Return rows without their order: a trainer reads the files of a folder in any order."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def plain(messages: list[Row]) -> list[Row]:
    return [{"role": each["role"], "content": each["content"]} for each in messages]


def test_ms_swift_reads_every_row(small_store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    pivot.export(small_store, folder, format="analyzer")
    rows, own = load("swift", folder), stored(folder, "analyzer", "train")
    assert own
    expected = [{"messages": plain(row["messages"]), "rejected": None, "images": digests(row)} for row in own]
    assert by_content([row | {"messages": plain(row["messages"])} for row in rows]) == by_content(expected)
    for row in rows:
        assert "".join(each["content"] for each in row["messages"]).count("<image>") == len(row["images"])
