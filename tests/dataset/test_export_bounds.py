"""Every environment in every format, the strength of its certificate, and the memory of exports of many rows."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import ConfigError
from pivot.core.plugins import names
from pivot.core.storage import LocalStorage
from pivot.datasets.store.config import solver_type
from pivot.datasets.store.store import Store
from pivot.tests.dataset.export_rows import CHECKS as KINDS
from pivot.tests.dataset.export_rows import Facts, export_problems, row_problems, rows_of

EXACT = ("sokoban", "frozenlake", "gym")
OTHERS = {"navigation": "lower_bound", "primitiveskill": "heuristic", "svg": "convention"}
STRENGTH: dict[str, str] = {**dict.fromkeys(EXACT, "exact"), **OTHERS}
WITHOUT = {
    "primitiveskill": {"corrections": "a heuristic", "pairs": "a heuristic"},
    "svg": {"credit": "a convention", "corrections": "a convention", "pairs": "a convention"},
}
"""Formats that the certificate of an environment cannot support, and the reason that the error gives."""
CLIFF = {"id": "CliffWalking-v1", "horizon": 20, "success": "terminated"}
SETTINGS: dict[str, dict[str, Any]] = {"gym": CLIFF, "navigation": {"horizon": 10}}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of one level per environment."""
    root, made = tmp_path_factory.mktemp("bounds"), dict[str, Path]()
    for env in STRENGTH:
        made[env] = root / env
        run = {"tasks": 1, "settings": SETTINGS.get(env, {})}
        pivot.build({"environments": {env: run}, "rollouts": 4 if env == "navigation" else 2}, made[env])
    return made


def test_every_environment_is_tested() -> None:
    assert set(STRENGTH) == set(names("environments"))
    assert {env: solver_type(env).kind for env in STRENGTH} == STRENGTH


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("env", STRENGTH)
def test_rows_say_how_strong_their_certificate_is(stores: dict[str, Path], tmp_path: Path, env: str, kind: str) -> None:
    """Catch a row that claims a stronger certificate than its environment gives, or a format that it cannot support."""
    if kind in WITHOUT.get(env, {}):
        reason = WITHOUT[env][kind]
        with pytest.raises(ConfigError, match=rf"export {kind}: found environment {env}: .*{reason}.*export another"):
            pivot.export(stores[env], tmp_path / "out", format=kind)
        assert not (tmp_path / "out").exists()
        return
    pivot.export(stores[env], tmp_path / "out", format=kind)
    rows = rows_of(tmp_path / "out", kind)
    assert rows
    assert {row["certificate_kind"] for row in rows} == {STRENGTH[env]}
    assert f"| {env} | {STRENGTH[env]} |" in (tmp_path / "out" / "README.md").read_text()
    assert export_problems(stores[env], tmp_path / "out") == []
    store = Store.open(stores[env])
    (shard,) = store.config.shards()
    facts = Facts(store, shard)
    assert [problem for row in rows for problem in row_problems(kind, row, facts)] == []
    facts.close()


def test_the_error_names_the_environments_that_have_rows(tmp_path: Path) -> None:
    runs = {name: {"tasks": 1, "settings": {}} for name in ("svg", "frozenlake", "primitiveskill")}
    pivot.build({"environments": runs, "rollouts": 2}, tmp_path / "store")
    for kind in ("pairs", "corrections"):
        with pytest.raises(ConfigError, match="choose the others with --env frozenlake"):
            pivot.export(tmp_path / "store", tmp_path / kind, format=kind)
    with pytest.raises(ConfigError, match="choose the others with --env frozenlake --env primitiveskill"):
        pivot.export(tmp_path / "store", tmp_path / "credit", format="credit")
    assert pivot.export(tmp_path / "store", tmp_path / "pairs", format="pairs", environments=["frozenlake"]).files


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
    pivot.build({"environments": {"sokoban": {"tasks": 128}}, "rollouts": 8, "tasks_per_shard": 128}, store)
    once = pivot.export(store, tmp_path / "once", format=kind).rows
    multiplied(store, -(-least // once))
    before = os.times()
    command = [sys.executable, "-c", SCRIPT, store, tmp_path / "out", kind]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    rows, peak = map(int, made.stdout.split())
    sys.stderr.write(f"{kind}: {rows} rows, {peak >> 10} MiB, {seconds:.0f} s of one core\n")
    assert rows >= least
    assert peak < 1_000_000, f"{peak} KiB"
