"""`pivot merge`: the rows, labels and episodes of several stores in one, each once; a kill leaves no half."""

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pivot
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.core.errors import ConfigError, PivotError, StoreError
from pivot.datasets.store.config import make_config
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.store import Store
from pivot.flows import merge as merging
from pivot.tests.core.faults import Fate, Killed, mortal
from pivot.tests.flow_runs import assert_nothing_is_torn, config_of, fingerprint
from pivot.tests.stores import change_rows, copy_store, problems, rewrite_manifest

SMALL = {"rollouts": 2, "tasks_per_shard": 2}
CLUMSY = {"name": "scripted", "options": {"habits": {"sokoban": {"skill": -20.0}}}}
LIMITED = config_of({"sokoban": 2}, solvers={"sokoban": {"max_states": 50_000}}, **SMALL)
OTHER = config_of({"sokoban": 2}, policy=CLUMSY, **SMALL)
STORES = (
    config_of({"sokoban": 2, "frozenlake": 2}, **SMALL),
    config_of({"sokoban": 3}, seed=7, **SMALL),
    config_of({"frozenlake": 3, "sokoban": 4}, **SMALL),
    config_of({"frozenlake": 2, "sokoban": 1}, seed=7, **SMALL),
)
"""Two seeds; stores of one environment and of both; the third has all levels of the first."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The stores to merge; the second has another label version. Copy them before changing anything."""
    folder = tmp_path_factory.mktemp("stores")
    for number, config in enumerate(STORES):
        pivot.build(config, folder / str(number))
    pivot.relabel(folder / "1", {"split": "task"})
    return [folder / str(number) for number in range(len(STORES))]


@pytest.fixture(scope="module")
def merged(stores: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All stores merged; copy it before changing anything."""
    root = tmp_path_factory.mktemp("merged") / "store"
    pivot.merge(*stores, out=root)
    return root


def rows_of(root: Path) -> dict[str, pl.DataFrame]:
    """Read tables without the code of stores, each key once, in an order of their own."""
    keys = {"episodes": ["episode_id"], "steps": ["episode_id", "t"], "labels": ["episode_id"], "calls": ["request_id"]}
    frames: dict[str, pl.DataFrame] = {}
    for table, key in keys.items():
        files = sorted(path for path in root.rglob("*.parquet") if table in path.relative_to(root).parts[:-2])
        frames[table] = pl.concat([pl.read_parquet(path) for path in files]).unique(key, keep="first").sort(key)
    frames["labels"] = frames["labels"].drop("label_version")
    frames["calls"] = frames["calls"].drop("latency")  # that of the store whose episode was copied
    return frames


def records_of(root: Path) -> pa.Table:
    """Read the records of the dataset, each episode once."""
    files = [path for path in sorted(root.rglob("*.parquet")) if {"dataset"} & {*path.parts} and "-" in path.stem]
    table = pa.concat_tables(pq.read_table(path) for path in files if not path.parent.name.endswith("_episodes"))
    first = pl.Series(table["episode_id"].to_pylist()).is_first_distinct()
    return table.filter(pa.array(first.to_list())).sort_by("episode_id")


def test_every_episode_label_and_record_is_stored_once(stores: list[Path], merged: Path, tmp_path: Path) -> None:
    before = [fingerprint(root) for root in stores]
    expected, actual = rows_of(stores[0].parent), rows_of(merged)
    for table, rows in expected.items():
        assert actual[table].equals(rows), table
        written = [path for path in merged.rglob("*.parquet") if table in path.relative_to(merged).parts[:-2]]
        assert sum(pq.read_metadata(path).num_rows for path in written) == len(rows), table
    assert records_of(merged).equals(records_of(stores[0].parent)), "collages, panels and prompts"
    runs = Store.open(merged).config.environments
    assert (runs["sokoban"].tasks, runs["sokoban"].seeds) == (7, ((0, 4), (7, 3)))
    assert (runs["frozenlake"].tasks, runs["frozenlake"].seeds) == (5, ((0, 3), (7, 2)))
    assert problems(merged) == []
    assert pivot.merge(*stores, out=merged).already_complete
    assert [fingerprint(root) for root in stores] == before
    relabelled = copy_store(merged, tmp_path / "relabelled")
    pivot.relabel(relabelled, {"log": "actions"})
    with pytest.raises(StoreError, match="was changed since"):
        pivot.merge(*stores, out=relabelled)


def test_each_level_is_in_one_split(merged: Path) -> None:
    sides: dict[str, set[str]] = {}
    for path in merged.glob("dataset/*/*.parquet"):
        for state in pq.read_table(path, columns=["initial_state"])["initial_state"].to_pylist():
            sides.setdefault(state, set()).add(path.stem.partition("-")[0])
    assert {len(each) for each in sides.values()} == {1}
    assert {side for each in sides.values() for side in each} == {"train", "validation"}


def test_a_store_of_all_levels_of_one_seed_has_the_bytes_of_its_build(tmp_path: Path) -> None:
    for levels in (2, 5):
        pivot.build(config_of({"frozenlake": levels}, **SMALL), tmp_path / str(levels))
    pivot.merge(tmp_path / "2", tmp_path / "5", out=tmp_path / "one")
    pivot.build(config_of({"frozenlake": 5}, rollouts=2, tasks_per_shard=16), tmp_path / "built")
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "built")


def test_pending_shards_of_a_merged_store_are_made_by_the_next_build(merged: Path, tmp_path: Path) -> None:
    root = copy_store(merged, tmp_path / "store")
    config = json.loads((root / "run.json").read_text())["config"]
    before = fingerprint(root)
    shutil.rmtree(root / ".receipts" / "rollout" / "sokoban")
    pivot.build(config, root)
    assert fingerprint(root) == before
    config["environments"]["sokoban"]["seeds"][0][1] += 1
    config["environments"]["sokoban"]["tasks"] += 1
    with pytest.raises(StoreError, match=r"levels of sokoban \(these are of merged stores"):
        pivot.build(config, root)


def test_verify_finds_other_levels_than_those_of_the_rows(merged: Path, tmp_path: Path) -> None:
    root = copy_store(merged, tmp_path / "store")
    raw = json.loads((root / "run.json").read_text())
    raw["config"]["environments"]["sokoban"]["seeds"] = [[0, 4], [8, 3]]
    (root / "run.json").write_text(json.dumps(raw))
    assert any("the run does not make" in each for each in problems(root))


# Refusals and kills


def _split(root: Path) -> None:
    pivot.build(STORES[0] | {"split": "episode"}, root)


def _damaged(root: Path) -> None:
    pivot.build(STORES[3], root)
    path = next(root.glob("steps/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def _stale(root: Path) -> None:
    pivot.build(STORES[3], root)
    path = next(root.glob(".receipts/rollout/*/*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"inputs": "0" * 32}))


def _short(root: Path) -> None:
    pivot.build(STORES[3], root)
    (path, *_) = root.glob("episodes/*/*.parquet")
    change_rows(root, path.relative_to(root).as_posix(), lambda rows: rows[:-1])
    rewrite_manifest(root)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (_short, StoreError, "lacks the episodes of level"),
        (partial(pivot.build, OTHER), ConfigError, "policy differs .* readers take a folder of stores as one"),
        (partial(pivot.build, LIMITED), ConfigError, "solver settings of sokoban differs"),
        (_split, ConfigError, "split differs"),
        (_damaged, StoreError, r"steps/.* is not the file that manifest\.json lists"),
        (_stale, StoreError, r"is of another version .* with --refresh"),
    ],
)
def test_what_cannot_be_merged_is_refused(
    stores: list[Path], tmp_path: Path, make: Callable[[Path], object], error: type[PivotError], message: str
) -> None:
    make(tmp_path / "other")
    with pytest.raises(error, match=message):
        pivot.merge(stores[0], tmp_path / "other", out=tmp_path / "new")
    with pytest.raises(StoreError):
        Store.open(tmp_path / "new")


def test_a_split_by_episode_is_not_merged(tmp_path: Path) -> None:
    _split(tmp_path / "one")
    with pytest.raises(ConfigError, match=r"split by episode.*pivot relabel STORE --split task"):
        pivot.merge(tmp_path / "one", tmp_path / "one", out=tmp_path / "new")


def test_killed_anywhere_the_same_call_goes_on_and_no_other(stores: list[Path], merged: Path, tmp_path: Path) -> None:
    """Catch a merge that goes on from other stores, or from rows that a kill left half written."""
    with mortal(Fate()) as fate:
        pivot.merge(*stores, out=tmp_path / "undisturbed")
    before, expected = [fingerprint(root) for root in stores], fingerprint(merged)
    changes = len(fate.changes)
    for moment in sorted({1, changes, *random.Random(34).sample(range(2, changes), 2)}):
        target = tmp_path / str(moment)
        with mortal(Fate(moment)), pytest.raises(Killed):
            pivot.merge(*stores, out=target)
        assert_nothing_is_torn(target)
        if 10 < moment < changes - 10:
            for read in (partial(pivot.build, make_config(STORES[0])), pivot.stats):
                with pytest.raises(StoreError, match="unfinished store of `pivot merge`"):
                    read(target)
            with pytest.raises(StoreError, match="begun from other stores"):
                pivot.merge(*stores[:2], out=target)
        pivot.merge(*stores, out=target)
        assert fingerprint(target) == expected, f"killed before {fate.changes[moment - 1]}"
    assert [fingerprint(root) for root in stores] == before


def test_a_store_that_changes_is_noticed(stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch rows of a store that a relabelling replaces meanwhile, or that a prune marks for removal."""
    root, mark, export = copy_store(stores[1], tmp_path / "store"), tmp_path / "mark", merging.export_store
    for act in (lambda: pivot.relabel(root, {"log": "actions"}), lambda: (root / "manifest.json").rename(mark)):
        monkeypatch.setattr(merging, "export_store", lambda *more, act=act: act() and export(*more))
        with pytest.raises(StoreError, match="was changed or removed while it was read; run the same command again"):
            pivot.merge(root, out=tmp_path / "new")
    monkeypatch.undo()
    mark.rename(root / "manifest.json")
    pivot.merge(root, out=tmp_path / "new")
    assert_nothing_is_torn(tmp_path / "new")
    assert load_store(tmp_path / "new").episodes.collect().height > 0
