"""`pivot compact --merge`: parts become one with the same rows in the same splits, however it ends."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.datasets.config import EnvRun, make_config
from pivot.datasets.export import moved_level_of
from pivot.datasets.parts import listed_parts, load_store
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.errors import ConfigError, NoStoreError, StoreError
from pivot.flows.append import reserve_night
from pivot.flows.compact import compact_store
from pivot.flows.engines.local import InProcess, execute_with
from pivot.flows.pipeline import BuildResult
from pivot.flows.relabel import relabel_parts
from pivot.storage import LocalStorage
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import FREE_FOLDERS, assert_nothing_is_torn, assert_whole, config_of, fingerprint
from pivot.tests.flows.test_append import append
from pivot.tests.storage.faults import Fate, Killed, mortal

import datasets

Place = tuple[int, int]
SMALL = {"rollouts": 2, "tasks_per_shard": 1}
OTHER = {"name": "scripted", "options": {"habits": {"sokoban": {"skill": -20.0}}}}
NIGHTS = (
    config_of({"sokoban": 2, "frozenlake": 2}, **SMALL),
    config_of({"sokoban": 3}, seed=7, **SMALL),
    config_of({"sokoban": 2}, policy=OTHER, **SMALL),
    config_of({"frozenlake": 3, "sokoban": 4}, **SMALL),
    config_of({"frozenlake": 2}, seed=7, **SMALL),
)
"""Two seeds; nights of one environment and of both; the third has another policy."""
ROWS = {"episodes": ["episode_id"], "steps": ["episode_id", "t"], "labels": ["episode_id"], "calls": ["request_id"]}


def merge(root: Path, target: Path, size: int | None = None) -> BuildResult:
    """Merge the parts of a store in this process."""
    return compact_store(root, target, execute_with(InProcess()), Silent(), tasks_per_shard=size, merge=True)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of five nights; copy it before changing anything."""
    root = tmp_path_factory.mktemp("grown") / "store"
    pivot.build(NIGHTS[0], root)
    assert [append(root, night) for night in NIGHTS[1:]] == [1, 2, 3, 4]
    return root


@pytest.fixture(scope="module")
def merged(grown: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in as few parts as possible; copy it before changing anything."""
    root = tmp_path_factory.mktemp("merged") / "store"
    merge(grown, root)
    return root


def rows_of(root: Path) -> dict[str, pl.DataFrame]:
    """Read the tables of all parts without the code of stores, in an order of their own."""
    frames: dict[str, pl.DataFrame] = {}
    for table, key in ROWS.items():
        files = sorted(path for path in root.rglob("*.parquet") if table in path.relative_to(root).parts[:-2])
        frames[table] = pl.concat([pl.read_parquet(path) for path in files]).sort(key)
    return frames


def sides_of(root: Path) -> dict[str, pa.Table]:
    """Read the records of every config and split without the code of stores."""
    tables: dict[str, pa.Table] = {}
    for config in ("sokoban", "frozenlake", "sokoban_episodes", "frozenlake_episodes"):
        for side in ("train", "validation"):
            files = sorted(root.glob(f"**/dataset/{config}/{side}-*.parquet"))
            if files:
                tables[f"{config} {side}"] = pa.concat_tables([pq.read_table(each) for each in files]).sort_by(
                    "episode_id"
                )
    return tables


def promised(root: Path) -> dict[str, str]:
    """Return the digests of the files with guaranteed bytes in all parts."""
    free = {*FREE_FOLDERS, "parts.json"}
    files = {name: digest for name, digest in fingerprint(root).items() if free.isdisjoint(name.split("/"))}
    return {name: digest for name, digest in files.items() if name != "README.md"}  # has a digest of manifests


def assert_same_rows(old: Path, new: Path, *tables: str) -> None:
    """Check that two stores hold the same rows, proofs included, in the same splits."""
    before, after = rows_of(old), rows_of(new)
    for table in tables or ROWS:
        assert after[table].equals(before[table]), table
    sides = [sides_of(root) for root in (old, new)]
    assert sides[0].keys() == sides[1].keys()
    for name, table in sides[0].items():
        assert sides[1][name].equals(table), name


# What is merged


def test_merged_parts_have_the_same_rows_in_fewer_files(grown: Path, merged: Path) -> None:
    before = fingerprint(grown)
    assert_same_rows(grown, merged)
    assert [*listed_parts(LocalStorage(merged))] == [1], "the part with another policy stays one"
    runs = Store.open(merged).config.environments
    assert (runs["sokoban"].tasks, runs["sokoban"].seeds) == (7, ((0, 2), (7, 3), (0, 2)))
    assert (runs["frozenlake"].tasks, runs["frozenlake"].seeds) == (5, ((0, 3), (7, 2)))
    assert (
        Store.open(merged / "parts" / "0001").config.policy.options
        == Store.open(grown / "parts/0002").config.policy.options
    )
    files = {root: len([*root.rglob("*.parquet")]) for root in (grown, merged)}
    assert files[merged] < files[grown] / 2
    assert_whole(merged / "parts" / "0001")
    assert verify_store(merged, Silent()).problems == []
    assert merge(grown, merged).already_complete
    assert fingerprint(grown) == before


def test_readers_see_the_same(grown: Path, merged: Path, tmp_path: Path) -> None:
    def loaded(root: Path) -> dict[Any, list[Any]]:
        whole = datasets.load_dataset(str(root), cache_dir=str(tmp_path / "cache" / root.parent.name))
        return {
            side: sorted(rows.select_columns(["episode_id", "completion"]).to_list(), key=str)
            for side, rows in whole.items()
        }

    assert loaded(grown) == loaded(merged)
    stats = [json.loads(run("stats", root, "--format", "json")) for root in (grown, merged)]
    assert stats[0] == stats[1]
    ids = [{*load_store(root).episodes.collect()["episode_id"]} for root in (grown, merged)]
    assert ids[0] == ids[1]


def test_parts_of_one_seed_become_a_build_of_all_their_levels(tmp_path: Path) -> None:
    pivot.build(config_of({"frozenlake": 4}, rollouts=4, tasks_per_shard=2), tmp_path / "grown")
    for levels in (7, 12):
        append(tmp_path / "grown", config_of({"frozenlake": levels}, rollouts=4))
    merge(tmp_path / "grown", tmp_path / "one", 5)
    pivot.build(config_of({"frozenlake": 12}, rollouts=4, tasks_per_shard=5), tmp_path / "built")
    if Store.open(tmp_path / "one").config.environments["frozenlake"].moved is None:
        assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "built")
    assert rows_of(tmp_path / "one").keys() == ROWS.keys()
    assert all(
        rows_of(tmp_path / "one")[name]
        .drop("latency_s", strict=False)
        .equals(rows_of(tmp_path / "built")[name].drop("latency_s", strict=False))
        for name in ("episodes", "steps", "labels")
    )
    assert_same_rows(tmp_path / "grown", tmp_path / "one")


def test_a_level_that_left_the_split_of_its_hash_stays_where_it_is(grown: Path, merged: Path) -> None:
    moved = {env: moved_level_of(Store.open(grown), env) for env in ("sokoban", "frozenlake")}
    assert any(moved.values()), "the first night is so small that a split would be empty"
    assert {env: moved_level_of(Store.open(merged), env) for env in moved} == moved
    moved_levels = [run.moved for run in Store.open(merged).config.environments.values()]
    assert any(each is not None for each in moved_levels)


# What comes after


def test_a_merged_store_grows_and_is_merged_again(grown: Path, merged: Path, tmp_path: Path) -> None:
    for root in (grown, merged):
        shutil.copytree(root, tmp_path / root.parent.name)
    roots = [tmp_path / root.parent.name for root in (grown, merged)]
    for root in roots:
        assert append(root, NIGHTS[1]) is None, "a night that is tried again finds its levels"
        assert reserve_night(root, make_config(NIGHTS[0])) is None or root == roots[0]
        assert append(root, config_of({"sokoban": 6, "frozenlake": 1}, seed=7, **SMALL)) == (
            5 if root == roots[0] else 2
        )
        relabel_parts(root, lambda _: {"log": "actions"}, execute_with(InProcess()), Silent())
    merge(roots[1], tmp_path / "again", 3)
    assert [*listed_parts(LocalStorage(tmp_path / "again"))] == [1]
    assert_same_rows(roots[0], tmp_path / "again", "episodes", "steps", "labels")  # calls have latencies
    assert verify_store(tmp_path / "again", Silent()).problems == []


def test_pending_levels_of_every_seed_are_made_by_the_next_build(merged: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(merged, tmp_path / "store"))
    before = fingerprint(root)
    shutil.rmtree(root / ".receipts" / "rollout" / "sokoban")
    (root / "manifest.json").unlink()
    (root / ".receipts" / "origin.json").unlink()
    pivot.build(json.loads((root / "run.json").read_text())["config"], root)
    assert fingerprint(root) == before


def test_a_merged_store_is_not_built_over(merged: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(merged, tmp_path / "store"))
    (root / "parts.json").unlink()  # a store with later parts refuses any plain build that grows it
    before = fingerprint(root)
    for levels in (7, 9):
        with pytest.raises(NoStoreError, match=r"levels of sokoban \(these are of merged parts.*--append"):
            pivot.build(NIGHTS[0] | config_of({"sokoban": levels, "frozenlake": 5}, **SMALL), root)
    assert fingerprint(root) == before


def test_reading_as_of_a_merged_part_is_refused(grown: Path, merged: Path) -> None:
    assert load_store(grown, as_of_part=1).episodes.collect().height == 14
    for part in (0, 2, 4):
        with pytest.raises(
            ConfigError, match=rf"found {part}, expected 1, because.*made 2 of the first 5 parts.*the store that was"
        ):
            load_store(merged, as_of_part=part)
    assert load_store(merged, as_of_part=1).episodes.collect().equals(load_store(merged).episodes.collect())
    assert "earlier states cannot be read" in str(error_of("stats", merged, "--as-of-part", "3"))


@pytest.mark.parametrize("content", [[], {"merged": 3}, {"merged": [1, 2]}, {"merged": {"0": [0, 1]}}])
def test_a_record_of_merged_parts_that_is_none_is_one_message(merged: Path, tmp_path: Path, content: Any) -> None:
    root = Path(shutil.copytree(merged, tmp_path / "store"))
    (root / ".receipts" / "origin.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(StoreError, match=r"origin\.json: found other merged parts than lists"):
        load_store(root, as_of_part=1)


# What is refused, found, and left by a kill


def test_what_cannot_be_merged_is_refused(grown: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(grown, tmp_path / "store"))
    relabel_parts(root, lambda _: {"split": "episode"}, execute_with(InProcess()), Silent())
    with pytest.raises(ConfigError, match=rf"split by episode.*pivot relabel {root} --split task"):
        merge(root, tmp_path / "new")
    pivot.build(NIGHTS[2], tmp_path / "other")
    append(tmp_path / "other", NIGHTS[1])
    with pytest.raises(ConfigError, match="shards of 1 levels already and no two parts with the same policy"):
        merge(tmp_path / "other", tmp_path / "new", 1)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda run: run.update(seeds=[[0, 2], [8, 3], [0, 2]]), "the run does not make"),
        (lambda run: run.pop("seeds"), "the run does not make"),
        (lambda run: run.update(moved=1 if run.get("moved") != 1 else -1), "dataset"),
    ],
)
def test_verify_finds_other_levels_than_those_of_the_rows(
    merged: Path, tmp_path: Path, change: Any, expected: str
) -> None:
    root = Path(shutil.copytree(merged, tmp_path / "store"))
    raw = json.loads((root / "run.json").read_text())
    change(raw["config"]["environments"]["sokoban"])
    (root / "run.json").write_text(json.dumps(raw))
    problems = verify_store(root, Silent()).problems
    assert any(expected in each for each in problems), problems


def test_killed_at_any_change_the_old_store_is_whole_and_the_same_call_goes_on(
    grown: Path, merged: Path, tmp_path: Path
) -> None:
    with mortal(Fate()) as fate:
        merge(grown, tmp_path / "undisturbed")
    before, expected = fingerprint(grown), promised(merged)
    changes = len(fate.changes)
    for moment in sorted({1, changes, *random.Random(34).sample(range(2, changes), 4)}):
        target = tmp_path / str(moment)
        with mortal(Fate(moment)), pytest.raises(Killed):
            merge(grown, target)
        assert_nothing_is_torn(target)
        if moment < changes - 10:
            with pytest.raises(StoreError):
                Store.open(target)
        merge(grown, target)
        assert promised(target) == expected, f"killed before {fate.changes[moment - 1]}"
    assert fingerprint(grown) == before


def test_a_night_that_comes_meanwhile_is_not_lost(grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(shutil.copytree(grown, tmp_path / "store"))

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        append(root, config_of({"sokoban": 1}, seed=11, **SMALL))
        return seal(*arguments)

    from pivot.flows import copying

    seal = copying.export_store
    monkeypatch.setattr(copying, "export_store", late)
    with pytest.raises(StoreError, match="was changed while it was read"):
        merge(root, tmp_path / "new")
    with pytest.raises(StoreError, match=r"from an earlier state|unfinished"):
        merge(root, tmp_path / "new")
    merge(root, tmp_path / "newer")
    assert_same_rows(root, tmp_path / "newer")


# The levels of a run


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=30),
    st.integers(0, 3),
)
def test_a_run_of_levels_has_these_levels(places: list[Place], seed: int) -> None:
    run = EnvRun.of(places, seed, {})
    assert run.places(seed) == places
    assert EnvRun.model_validate_json(run.model_dump_json()) == run
    plain = places == [(seed, index) for index in range(len(places))]
    assert ({"drawn", "seeds", "moved"}.isdisjoint(run.model_dump())) == plain
