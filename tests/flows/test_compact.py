"""`pivot compact`: the same rows in shards of another size are the bytes of a build with that size, however it ends."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.datasets.config import PartConfig, Shard, make_config
from pivot.datasets.parts import load_store
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.errors import ConfigError, StoreError
from pivot.flows.compact import compact_store, compacted_config
from pivot.flows.engines.local import InProcess, execute_with
from pivot.flows.pipeline import BuildResult
from pivot.flows.relabel import relabel_store
from pivot.tests.cli.command_line import run
from pivot.tests.flow_runs import assert_nothing_is_torn, assert_whole, config_of, files_of, fingerprint
from pivot.tests.flows.test_append import append
from pivot.tests.flows.test_served_faults import QUICK, tables_of
from pivot.tests.flows.test_writers import coach
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, served
from pivot.tests.storage.faults import Fate, Killed, mortal
from pivot.tests.stores import change_rows, copy_store, rewrite_manifest

TASKS = {"sokoban": 5, "frozenlake": 6}
LOST_BEFORE_THE_START = {"frozenlake": {"tasks": 6, "settings": {"horizon": 12, "size": 8}}}


def config(size: int, **fields: Any) -> dict[str, Any]:
    """Two environments, one with levels that nobody can make in time, in shards of so many levels."""
    base = config_of(TASKS, rollouts=3, tasks_per_shard=size)
    return base | {"environments": base["environments"] | LOST_BEFORE_THE_START} | fields


def compact(root: Path, target: Path, size: int | None = None) -> BuildResult:
    return compact_store(root, target, execute_with(InProcess()), Silent(), tasks_per_shard=size)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A store with shards of two levels, and one of three; copy them before changing anything."""
    folder = tmp_path_factory.mktemp("stores")
    for size in (2, 3):
        pivot.build(config(size), folder / str(size))
    labels = load_store(folder / "2").labels.collect()
    assert labels["infeasible_at_start"].any() and not labels["infeasible_at_start"].all()
    return {size: folder / str(size) for size in (2, 3)}


@pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 2)])
def test_the_bytes_are_those_of_a_build_with_that_size(
    stores: dict[int, Path], tmp_path: Path, old: int, new: int
) -> None:
    before = fingerprint(stores[old])
    result = compact(stores[old], tmp_path / "new", new)
    assert fingerprint(tmp_path / "new") == fingerprint(stores[new])
    assert fingerprint(stores[old]) == before
    assert_whole(tmp_path / "new")
    assert (result.already_complete, result.shards) == (False, 4 if new == 3 else 6)
    assert pivot.build(config(new), tmp_path / "new").already_complete
    assert compact(stores[old], tmp_path / "new", new).already_complete
    if new == 3:
        assert verify_store(tmp_path / "new", Silent()).problems == []


def test_the_current_labels_are_taken_along(stores: dict[int, Path], tmp_path: Path) -> None:
    roots = {size: copy_store(root, tmp_path / str(size)) for size, root in stores.items()}
    for size, root in roots.items():
        changes = {"log": "actions", "split": "episode"}
        relabel_store(root, changes, execute_with(InProcess()), Silent(), keep_old=size == 2)
    compact(roots[2], tmp_path / "new", 3)
    assert fingerprint(tmp_path / "new") == fingerprint(roots[3])
    assert [name for name in files_of(tmp_path / "new") if "v1" in name] == []
    assert_whole(tmp_path / "new")


def test_what_models_said_and_still_owe_stays_and_nobody_is_asked(tmp_path: Path) -> None:
    """A policy and a teacher behind servers that refuse some requests for good."""

    def part(server: ChatServer) -> dict[str, Any]:
        service = {**QUICK, "base_url": server.url, "tries": 1, "patience_seconds": 60.0}
        return {"name": "openai", "options": {"model": MODEL}, "service": service}

    def refuses_one_in(many: int) -> Callable[[str, int], str | None]:
        return lambda key, tried: "500" if number_of(key) % many == 0 else None

    with served(fault=refuses_one_in(30)) as player, served(coach, fault=refuses_one_in(2)) as teacher:
        fields = config_of({"sokoban": 4}, rollouts=4, policy=part(player), teacher=part(teacher))
        results = {size: pivot.build(fields | {"tasks_per_shard": size}, tmp_path / str(size)) for size in (1, 3)}
        assert results[1].pending_episodes == results[3].pending_episodes > 1
        assert results[1].unanswered == results[3].unanswered > 1
        requests = player.log.requests, teacher.log.requests
        result = compact(tmp_path / "1", tmp_path / "new", 3)
        assert (player.log.requests, teacher.log.requests) == requests
        assert result.environments == results[3].environments
        frames = [load_store(tmp_path / each) for each in ("1", "new")]
        for table in ("episodes", "steps", "calls", "labels"):
            before, after = (getattr(each, table).collect() for each in frames)
            assert before.equals(after), table
        tables = [tables_of(tmp_path / each) for each in ("3", "new")]
        same = [{name: each[name] for name in each if not name.startswith("labels/")} for each in tables]
        assert same[0] == same[1]  # a pending label states the number of tries, which differs in every run
        player.fault = teacher.fault = lambda key, tried: None
        finished = [pivot.build(fields | {"tasks_per_shard": 3}, tmp_path / each) for each in ("3", "new")]
    assert [each.pending_episodes + each.unanswered for each in finished] == [0, 0]
    assert tables_of(tmp_path / "new") == tables_of(tmp_path / "3")


def test_killed_at_any_change_the_old_store_is_whole_and_the_same_call_goes_on(
    stores: dict[int, Path], tmp_path: Path
) -> None:
    with mortal(Fate()) as fate:
        compact(stores[2], tmp_path / "undisturbed", 3)
    assert len(fate.changes) > 30
    before, expected = fingerprint(stores[2]), fingerprint(stores[3])
    for moment in sorted({len(fate.changes), *random.Random(4).sample(range(2, len(fate.changes)), 2)}):
        target = tmp_path / str(moment)
        with mortal(Fate(moment)), pytest.raises(Killed):
            compact(stores[2], target, 3)
        assert_nothing_is_torn(target)
        with pytest.raises(StoreError, match=r"pivot compact STORE --out|holds no run\.json"):
            Store.open(target)
        if moment > 10:
            with pytest.raises(StoreError, match="unfinished store of `pivot compact`"):
                pivot.build(config(3), target)
            with pytest.raises(StoreError, match="begun by `pivot compact` from another store"):
                compact(stores[2], target, 4)
        compact(stores[2], target, 3)
        assert fingerprint(target) == expected, f"killed before {fate.changes[moment - 1]}"
        assert_whole(target)
    assert fingerprint(stores[2]) == before


def test_a_store_is_never_mixed_with_another_one(stores: dict[int, Path], tmp_path: Path) -> None:
    root = copy_store(stores[2], tmp_path / "store")
    for target in (root, root / "dataset" / "new"):
        with pytest.raises((ConfigError, StoreError), match="choose another --out"):
            compact(root, target, 3)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match=r"holds 'thesis\.txt'.*choose an empty folder"):
        compact(root, tmp_path / "foreign", 3)
    with pytest.raises(StoreError, match="is not of this command"):
        compact(root, stores[3], 3)  # a build made it
    compact(root, tmp_path / "new", 3)
    relabel_store(root, {"split": "episode"}, execute_with(InProcess()), Silent())
    with pytest.raises(StoreError, match="from an earlier state of this one"):
        compact(root, tmp_path / "new", 3)
    assert fingerprint(tmp_path / "new") == fingerprint(stores[3])


def test_what_was_damaged_or_is_of_another_version_is_refused_by_name(stores: dict[int, Path], tmp_path: Path) -> None:
    root, target, file = tmp_path / "store", tmp_path / "new", "steps/sokoban/00001.parquet"
    labels = "labels/v1/sokoban/00001.parquet"

    def refused(match: str) -> None:
        with pytest.raises(StoreError, match=match):
            compact(root, target, 3)
        shutil.rmtree(target, ignore_errors=True)
        copy_store(stores[2], root)

    copy_store(stores[2], root)
    change_rows(root, file, lambda rows: rows[0].update(reward=7.0))
    refused(rf"{file} is not the file that manifest\.json lists.*pivot verify")
    change_rows(root, file, lambda rows: rows[:-1])
    rewrite_manifest(root)
    refused("rows of shard sokoban/00001 do not belong together")
    change_rows(root, labels, lambda rows: rows[1:])
    rewrite_manifest(root)
    refused("its labels are not those of its")
    change_rows(root, labels, lambda rows: [row | {"pivot_step": -(2**31)} for row in rows])
    rewrite_manifest(root)
    refused("has the pivot step -2147483648, expected none below 0")
    pq.write_table(pq.read_table(root / file).drop_columns("state"), root / file)
    rewrite_manifest(root)
    refused(rf"{file} lacks column state.*restore it from a copy")
    store = Store.open(root)
    name = store.receipt_file("label-v1", Shard("sokoban", 1, 2, 4))
    store.storage.write_json(name, store.storage.read_json(name) | {"inputs": "0" * 64})
    refused(rf"{name} is of another version.*build {root} again with --refresh")
    shutil.rmtree(root / ".receipts")  # as of a store that was published
    compact(root, target, 3)
    assert fingerprint(target) == fingerprint(stores[3])


def test_the_size_fits_the_store_and_a_training_run_keeps_its_own(stores: dict[int, Path]) -> None:
    store = Store.open(stores[2])
    assert compacted_config(store).tasks_per_shard == 16
    many = {"frozenlake": {"tasks": 5_000, "settings": {}}}
    large = Store(stores[2], make_config(config(2, environments=many)))
    assert compacted_config(large).tasks_per_shard == 32
    with pytest.raises(ConfigError, match=r"shards of 2 levels already.*--shard-size"):
        compact(stores[2], stores[2].parent / "never", 2)
    trained = make_config(config(2)).model_copy(update={"policy": PartConfig(name="trained")})
    with pytest.raises(ConfigError, match="holds the rollouts of a training run"):
        compacted_config(Store(stores[2], trained))


def test_a_part_is_compacted_alone(tmp_path: Path) -> None:
    fields = {"rollouts": 2, "tasks_per_shard": 2}
    pivot.build(config_of({"frozenlake": 3}, **fields), tmp_path / "grown")
    append(tmp_path / "grown", config_of({"frozenlake": 4}, **fields))
    part = tmp_path / "grown/parts/0001"
    compact(part, tmp_path / "new", 1)
    for table in ("episodes", "labels"):
        old, new = (getattr(load_store(root), table).collect() for root in (part, tmp_path / "new"))
        assert new.sort("episode_id").equals(old.sort("episode_id")) and len(old)
    assert verify_store(tmp_path / "new", Silent()).problems == []


def test_later_parts_are_taken_along_each_on_its_own(tmp_path: Path) -> None:
    for size in (1, 2):
        fields = {"rollouts": 2, "tasks_per_shard": size}
        pivot.build(config_of({"frozenlake": 3}, **fields), tmp_path / str(size))
        append(tmp_path / str(size), config_of({"frozenlake": 4}, **fields))
    with mortal(Fate()) as fate:
        compact(tmp_path / "1", tmp_path / "new", 2)
    manifests = [place for place, change in enumerate(fate.changes, 1) if change == "write manifest.json"]
    killed = (manifests[-1], len(fate.changes))  # when the parts are there, and when only what shows them is not
    for moment in killed:
        with mortal(Fate(moment)), pytest.raises(Killed):
            compact(tmp_path / "1", tmp_path / f"killed {moment}", 2)
        compact(tmp_path / "1", tmp_path / f"killed {moment}", 2)
    for made in ("new", *(f"killed {moment}" for moment in killed)):
        for part in ("", "parts/0001"):
            expected, actual = (fingerprint(tmp_path / each / part) for each in ("2", made))
            if not part:  # the list of parts and the card over them name digests of manifests, and these of calls
                same = {name for name in expected | actual if not name.startswith(("parts", "README"))}
                expected, actual = ({name: each.get(name, "") for name in same} for each in (expected, actual))
            assert actual == expected and len(expected) > 10, (made, part)
        assert load_store(tmp_path / made).episodes.collect().equals(load_store(tmp_path / "1").episodes.collect())
    assert verify_store(tmp_path / "new", Silent()).problems == []


def test_the_command_says_what_it_made(stores: dict[int, Path], tmp_path: Path) -> None:
    target = tmp_path / "new"
    shown = run("compact", stores[2], "--out", target, "--shard-size", "3", "--workers", "1")
    assert f"{target} holds the 33 episodes of {stores[2]} in 4 shards of up to 3 levels" in shown
    assert f"pivot verify {target}" in shown
    assert fingerprint(target) == fingerprint(stores[3])
    assert "nothing was left to do" in run("compact", stores[2], "--out", target, "--shard-size", "3", "--workers", "1")
