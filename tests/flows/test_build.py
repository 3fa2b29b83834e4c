"""A build is a function of its config: equal bytes with more workers, growth and repair."""

import json
import os
from pathlib import Path

import pivot
import pytest
from pivot.core.errors import ConfigError, StoreError
from pivot.core.storage import open_storage
from pivot.core.storage.base import Receipt
from pivot.datasets.store import store as stores
from pivot.datasets.store.config import make_config
from pivot.tests.flow_runs import assert_whole, config_of, files_of, fingerprint
from pivot.tests.stores import built_once

TASKS = {"sokoban": 3, "frozenlake": 2}
CONFIG = config_of(TASKS)


built = built_once(CONFIG)


# Determinism


def test_the_same_build_with_two_workers_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """Catch a byte that depends on the number of worker processes, or on what a worker did before."""
    result = pivot.build(CONFIG, root := tmp_path / "again", workers=2)
    assert (result.root, result.already_complete, result.reused_shards, result.shards) == (root, False, 0, 5)
    assert fingerprint(tmp_path / "again") == fingerprint(built)
    assert result.environments == pivot.build(CONFIG, built).environments
    assert_whole(tmp_path / "again")


def test_another_folder_and_another_order_of_fields_change_nothing(built: Path, tmp_path: Path) -> None:
    pivot.build(dict(reversed(CONFIG.items())), tmp_path / "deep" / "er" / "store")
    assert fingerprint(tmp_path / "deep" / "er" / "store") == fingerprint(built)


def test_no_file_holds_a_time_or_the_place_where_it_was_made(built: Path, tmp_path: Path) -> None:
    for name in fingerprint(built):
        content = (built / name).read_bytes()
        assert str(built).encode() not in content, name
        assert str(tmp_path.parent).encode() not in content, name


# Already complete, and repairs


def test_a_complete_store_is_left_alone(store: Path) -> None:
    before = {name: (store / name).stat().st_mtime_ns for name in files_of(store) if name != ".lock"}
    assert pivot.build(CONFIG, store).already_complete
    assert {name: (store / name).stat().st_mtime_ns for name in before} == before


def test_a_later_release_of_one_format_finds_the_store_complete(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pivot", "pivot.core.version", "pivot.datasets.store.stages"):
        monkeypatch.setattr(f"{module}.__version__", "99.0", raising=False)
    assert pivot.build(CONFIG, store).already_complete
    receipt = Receipt.read(open_storage(store), ".receipts/label-v1/sokoban/00000.json")
    (store / "manifest.json").unlink()
    result = pivot.build(CONFIG, store)  # looks at the digests of all receipts
    assert result.reused_shards == 5
    assert Receipt.read(open_storage(store), ".receipts/label-v1/sokoban/00000.json") == receipt


LOST = (
    "frames/frozenlake/00000.parquet",
    "prompts/frozenlake/00001-labels-v1.parquet",
    "dataset/README.md",
    "manifest.json",
    ".receipts/rollout/sokoban/00000.json",
)


@pytest.mark.parametrize("kept", [None, 0.5], ids=["deleted", "cut in half"])
@pytest.mark.parametrize("name", LOST)
def test_a_lost_or_short_file_is_made_again(built: Path, store: Path, name: str, kept: float | None) -> None:
    path = store / name
    if kept is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    result = pivot.build(CONFIG, store)
    assert fingerprint(store) == fingerprint(built)
    assert_whole(store)
    assert path.stat().st_size > 0
    rolled_out_anew = name.split("/", maxsplit=1)[0] in ("episodes", "calls", "frames") or "/rollout/" in name
    assert result.reused_shards == 5 - rolled_out_anew


def _flip(path: Path) -> None:
    """Change a file at equal length."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["frames/sokoban/00001.parquet", "dataset/frozenlake_episodes/train-00001.parquet"])
def test_a_file_that_was_changed_at_equal_length_is_made_again(built: Path, store: Path, name: str) -> None:
    _flip(store / name)
    _flip(store / "dataset/README.md")
    assert not pivot.build(CONFIG, store).already_complete
    assert fingerprint(store) == fingerprint(built)
    assert_whole(store)
    _flip(store / "dataset/README.md")
    assert not pivot.build(CONFIG, store).already_complete
    assert pivot.build(CONFIG, store).already_complete
    assert fingerprint(store) == fingerprint(built)


def test_a_file_that_was_only_touched_is_kept(store: Path) -> None:
    for name in fingerprint(store):
        os.utime(store / name)
    assert pivot.build(CONFIG, store).already_complete


def test_lost_views_are_written_again(store: Path) -> None:
    (store / "pivot.duckdb").write_bytes(b"torn")
    assert any("remove pivot.duckdb and run the same build again" in each for each in pivot.verify(store).problems)
    (store / "pivot.duckdb").unlink()
    assert not pivot.build(CONFIG, store).already_complete
    assert (store / "pivot.duckdb").read_bytes()[8:12] == b"DUCK"


# Growth


def test_more_tasks_keep_what_is_there(built: Path, store: Path) -> None:
    kept = {name: digest for name, digest in fingerprint(built).items() if not name.startswith(("dataset", "run.json"))}
    result = pivot.build(config_of(TASKS | {"frozenlake": 4}), store)
    assert (result.reused_shards, result.shards) == (5, 7)
    assert kept.items() <= fingerprint(store).items()
    assert_whole(store)


def test_growing_gives_the_store_that_a_build_at_once_gives(tmp_path: Path) -> None:
    """A licence that was stated once is kept; the lake that has to be held out of two is one to train on of six."""
    small, stated = {"tasks_per_shard": 2, "rollouts": 2, "validation_fraction": 0.03}, {"license": "cc-by-4.0"}
    pivot.build(config_of({"sokoban": 3, "frozenlake": 6}, **small, **stated), tmp_path / "at once")
    pivot.build(config_of({"frozenlake": 2}, **small, **stated), tmp_path / "grown")
    for sokoban, lakes in ((1, 2), (3, 6)):
        pivot.build(config_of({"sokoban": sokoban, "frozenlake": lakes}, **small), tmp_path / "grown")
    assert fingerprint(tmp_path / "grown") == fingerprint(tmp_path / "at once")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (config_of({"sokoban": 3, "frozenlake": 1}), "tasks of frozenlake (it holds 2, 1 asked for)"),
        (config_of(TASKS, seed=1), "seed"),
        (config_of(TASKS, rollouts=5), "rollouts"),
        (config_of(TASKS, tasks_per_shard=2), "tasks_per_shard"),
        (config_of(TASKS, split="episode"), "split"),
        (config_of(3), "it also holds frozenlake"),
        (config_of(TASKS) | {"environments": {"sokoban": {"tasks": 3, "settings": {"boxes": 2}}}}, "sokoban (boxes)"),
    ],
    ids=["fewer tasks", "seed", "rollouts", "shard size", "split", "environment left out", "settings"],
)
def test_a_store_never_becomes_another_silently(built: Path, store: Path, other: dict, named: str) -> None:
    with pytest.raises(StoreError, match="holds a run with another config") as caught:
        pivot.build(other, store)
    assert named in str(caught.value) and "--refresh" in str(caught.value)
    assert pivot.build(CONFIG, store).already_complete
    assert fingerprint(store) == fingerprint(built)


def test_refresh_rebuilds_everything(built: Path, store: Path, tmp_path: Path) -> None:
    result = pivot.build(CONFIG, store, refresh=True)
    assert (result.already_complete, result.reused_shards) == (False, 0)
    assert fingerprint(store) == fingerprint(built)
    other = config_of(1, seed=7)
    for name in ("imports/left.parquet", ".dataset-v2/left.parquet", "audit.json"):  # of an import, a killed relabel
        (store / name).parent.mkdir(exist_ok=True)
        (store / name).touch()
    pivot.build(other, store, refresh=True)
    pivot.build(other, tmp_path / "other")
    assert fingerprint(store) == fingerprint(tmp_path / "other")
    assert_whole(store)


# Configs


def test_a_damaged_config_is_named(store: Path) -> None:
    text = (store / "run.json").read_text()
    (store / "run.json").write_text(text[: len(text) // 2])
    with pytest.raises(StoreError, match=r"run\.json is not valid JSON"):
        pivot.build(CONFIG, store)
    broken = json.loads(text)
    broken["config"]["colour"] = "red"
    (store / "run.json").write_text(json.dumps(broken))
    with pytest.raises((StoreError, ConfigError), match="colour"):
        pivot.build(CONFIG, store)


def test_a_store_of_another_folder_or_config_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(CONFIG)
    monkeypatch.chdir(tmp_path)
    here = stores.open_once(Path("store"), config)
    assert stores.open_once(Path("store"), config) is here
    assert stores.open_once(Path("store"), config.model_copy(update={"label_version": 2})) is not here
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert stores.open_once(Path("store"), config) is not here
