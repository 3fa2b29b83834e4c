"""Memory of exports of many rows: run by ``make test WHAT=export-scale``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pivot
import pytest
from pivot.core.storage import LocalStorage
from pivot.datasets.store.store import Store

SCRIPT = """
import resource, sys
import pivot
made = pivot.export(sys.argv[1], sys.argv[2], format=sys.argv[3])
print(made.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def multiplied(root: Path, times: int) -> None:
    """Repeat the only shard of a store of one environment under further numbers; files are shared by links."""
    store = Store.open(root)
    (shard,) = store.config.shards()
    files = dict(store.manifest())
    for name in list(files):
        folder, mark = name.rsplit("/", 1) if "/" in name else ("", name)
        if "00000" not in mark or folder.startswith("dataset"):
            continue
        for number in range(1, times):
            other = f"{folder}/{mark.replace('00000', f'{number:05d}')}"
            os.link(root / name, root / other)
            files[other] = files[name]
    run = json.loads((root / "run.json").read_text())
    run["config"]["environments"][shard.env]["tasks"] = shard.stop * times
    storage = LocalStorage(root)
    storage.write_json("run.json", run)
    files["run.json"] = storage.record("run.json")
    store.write_manifest(files)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "least"), [("credit", 1_000_000), ("corrections", 60_000)])
def test_many_rows_take_less_than_a_gigabyte(tmp_path: Path, kind: str, least: int) -> None:
    """Rows of corrections have pictures and prompts; a million of them take 20 minutes."""
    store = tmp_path / "store"
    run = {"tasks": 128, "settings": {}}
    pivot.build({"environments": {"sokoban": run}, "rollouts": 8, "tasks_per_shard": 128}, store)
    once = pivot.export(store, tmp_path / "once", format=kind).rows
    multiplied(store, -(-least // once))
    before = os.times()
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT, store, tmp_path / "out", kind], check=True, capture_output=True, text=True
    )
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    rows, peak = map(int, made.stdout.split())
    sys.stderr.write(f"{kind}: {rows} rows, {peak >> 10} MiB, {seconds:.0f} s of one core\n")
    assert rows >= least
    assert peak < 1_000_000, f"{peak} KiB"
