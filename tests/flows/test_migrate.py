"""`pivot migrate`: stores as older versions wrote them become stores of this version, and what was refused says so."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.datasets.parts import load_store
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.errors import ConfigError, PivotError, StoreError
from pivot.flows.engines.local import InProcess, execute_with
from pivot.flows.migrate import Migration, migrate_store
from pivot.flows.relabel import relabel_store
from pivot.storage import LocalStorage
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.flow_runs import assert_nothing_is_torn, assert_whole, config_of, fingerprint
from pivot.tests.flows.test_served_faults import QUICK, tables_of
from pivot.tests.flows.test_writers import coach
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, served
from pivot.tests.storage.faults import Fate, Killed, mortal
from pivot.tests.stores import copy_store, rewrite_manifest

CONFIG = config_of({"sokoban": 2, "frozenlake": 3}, rollouts=3, tasks_per_shard=2)
LATER = {
    "episodes": ["optimal_start"],
    "steps": ["state", "need", "reply_outcome", "observation_text"],
    "calls": ["answered", "left_out"],
    "labels": ["proved"],
    "dataset": ["proved"],
}
"""Columns that a store lacks as an older version wrote it."""


def make_older(root: Path, change: Callable[[dict[str, Any]], object] = lambda run: None) -> Path:
    """Take columns, fields and formats out of a store; its receipts are those of another version."""
    for path in sorted(root.rglob("*.parquet")):
        lacking = LATER.get(path.relative_to(root).parts[0], [])
        table = pq.read_table(path)
        pq.write_table(table.drop_columns([name for name in lacking if name in table.column_names]), path)
    for path in (root / ".receipts").rglob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"inputs": "0" * 32}))
    storage = LocalStorage(root)
    raw = storage.read_json("run.json")
    for name in ("log", "license", "include_infeasible"):
        del raw["config"][name]
    raw["formats"] = {"store": 4, "labels": 4}
    raw["versions"]["pivot-vlm"] = "0.0.1"
    change(raw)
    storage.write_json("run.json", raw)
    names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    kept = [name for name in names if not name.startswith(".") and name not in ("manifest.json", "pivot.duckdb")]
    storage.write_json("manifest.json", {"files": {name: vars_of(storage, name) for name in kept}})
    return root


def vars_of(storage: LocalStorage, name: str) -> dict[str, Any]:
    record = storage.record(name)
    return {"sha256": record.sha256, "bytes": record.bytes}


def migrate(root: Path, target: Path) -> Migration:
    return migrate_store(root, target, execute_with(InProcess()), Silent())


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of this version."""
    root = tmp_path_factory.mktemp("fresh") / "store"
    pivot.build(CONFIG, root)
    return root


@pytest.fixture(scope="module")
def older(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as an older version wrote it; copy it before changing anything."""
    return make_older(copy_store(fresh, tmp_path_factory.mktemp("older") / "store"))


def test_embedded_parts_come_out_as_this_version_makes_them(fresh: Path, older: Path, tmp_path: Path) -> None:
    before, target = fingerprint(older), tmp_path / "new"
    migration = migrate(older, target)
    assert fingerprint(target) == fingerprint(fresh)
    assert fingerprint(older) == before != fingerprint(fresh)
    assert_whole(target)
    assert verify_store(target, Silent()).problems == []
    assert (migration.left_out, migration.result.already_complete) == ([], False)
    assert migrate(older, target).result.already_complete
    assert pivot.build(CONFIG, target).already_complete


def test_every_reader_and_writer_of_an_older_store_names_the_command(older: Path, tmp_path: Path) -> None:
    root = copy_store(older, tmp_path / "store")
    command = rf"pivot migrate {root} --out NEW"
    with pytest.raises(StoreError, match=rf"00000\.parquet lacks columns .*; .*{command}"):
        load_store(root)
    with pytest.raises(StoreError, match=rf"store format 4, this version writes .*{command}"):
        pivot.build(CONFIG, root)
    with pytest.raises(StoreError, match=command):
        relabel_store(root, {"split": "episode"}, execute_with(InProcess()), Silent())
    assert command in str(error_of("stats", root))
    (root / "manifest.json").rename(tmp_path / "manifest.json")
    with pytest.raises(StoreError, match=r"unfinished: finish it with the version that began it, or .* --refresh"):
        pivot.build(CONFIG, root)
    (tmp_path / "manifest.json").rename(root / "manifest.json")
    assert any(command in problem for problem in verify_store(root, Silent()).problems)
    assert fingerprint(root) == fingerprint(older)


def test_a_store_of_a_newer_version_is_left_alone(fresh: Path, tmp_path: Path) -> None:
    root = copy_store(fresh, tmp_path / "store")
    run = json.loads((root / "run.json").read_text())
    run["formats"]["store"] += 1
    (root / "run.json").write_text(json.dumps(run))
    newer = "a newer PIVOT wrote it; install that one"
    with pytest.raises(StoreError, match=newer):
        migrate(root, tmp_path / "new")
    with pytest.raises(StoreError, match=newer):
        pivot.build(CONFIG, root)
    (root / "run.json").write_text('{"config": 5}')
    with pytest.raises(ConfigError, match=r"run\.json: found 5 .*expected an object"):
        migrate(root, tmp_path / "new")


def test_settings_that_are_gone_are_left_out_and_named(fresh: Path, tmp_path: Path) -> None:
    def change(run: dict[str, Any]) -> None:
        run["config"]["compression"] = "zstd"
        run["config"]["environments"]["sokoban"]["settings"]["shadows"] = True
        run["config"]["policy"]["options"]["verbose"] = 1

    root = make_older(copy_store(fresh, tmp_path / "store"), change)
    with pytest.raises(ConfigError, match=rf"another version wrote it: .*pivot migrate {root} --out NEW"):
        Store.open(root)
    migration = migrate(root, tmp_path / "new")
    assert migration.left_out == ["compression='zstd'", "sokoban.shadows=True", "policy.verbose=1"]
    assert fingerprint(tmp_path / "new") == fingerprint(fresh)


def test_what_models_said_is_kept_and_nobody_is_asked(tmp_path: Path) -> None:
    """Token ids, errors, calls and guidance stay; a label whose teacher prompt would differ is pending."""

    def part(server: ChatServer) -> dict[str, Any]:
        service = {**QUICK, "base_url": server.url, "tries": 1, "patience_seconds": 60.0}
        return {"name": "openai", "options": {"model": MODEL}, "service": service}

    def refuses_some(key: str, tried: int) -> str | None:
        return "500" if number_of(key) % 30 == 0 else None

    with served(fault=refuses_some) as player, served(coach) as teacher:
        fields = config_of({"sokoban": 3}, rollouts=4, policy=part(player), teacher=part(teacher))
        fields["tasks_per_shard"] = 3
        built = pivot.build(fields, tmp_path / "fresh")
        assert 0 < built.pending_episodes < 6
    root = make_older(copy_store(tmp_path / "fresh", tmp_path / "older"))
    result = migrate(root, tmp_path / "new").result
    assert (result.unanswered, result.environments) == (0, built.environments)
    assert tables_of(tmp_path / "new") == tables_of(tmp_path / "fresh")
    assert verify_store(tmp_path / "new", Silent()).problems == []
    calls = [load_store(tmp_path / each).calls.drop("answered", "left_out").collect() for each in ("fresh", "new")]
    assert calls[0].equals(calls[1])
    assert {"student", "teacher"} == set(calls[0]["role"])

    name = "labels/v1/sokoban/00000.parquet"
    table = pq.read_table(root / name)
    shown = pa.array([*["0" * 32] * 2, *table["teacher_prompt_hash"].to_pylist()[2:]])
    place = table.column_names.index("teacher_prompt_hash")
    pq.write_table(table.set_column(place, "teacher_prompt_hash", shown), root / name)
    rewrite_manifest(root)
    assert migrate(root, tmp_path / "owed").result.unanswered == 2
    reasons = load_store(tmp_path / "owed").labels.collect()["reject_reasons"].explode().drop_nulls()
    assert [each["kind"] for each in reasons if each["kind"] == "unanswered"] == ["unanswered"] * 2


LIES: dict[str, tuple[str, Callable[[list[dict[str, Any]]], object], str]] = {
    "reward": ("steps/sokoban", lambda rows: rows[1].update(reward=0.5), "reward holds 0.5, recomputed"),
    "frame": ("steps/sokoban", lambda rows: rows[1].update(next_frame_id="f" * 64), "next_frame_id holds"),
    "reply": (
        "steps/sokoban",
        lambda rows: rows[0].update(response="<answer>up</answer>"),
        "step 0: action holds|num_steps",
    ),
    "return": ("episodes/frozenlake", lambda rows: rows[2].update(episode_return=3.0), "episode_return holds 3.0"),
    "level": ("episodes/frozenlake", lambda rows: [row.update(initial_state="SG") for row in rows], "initial_state"),
    "policy": (
        "episodes/sokoban",
        lambda rows: [row.update(policy_config='{"version":"0"}') for row in rows],
        "version holds '0', recomputed",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_come_out_as_stored_is_refused_by_name(older: Path, tmp_path: Path, lie: str) -> None:
    table, change, message = LIES[lie]
    root, name = copy_store(older, tmp_path / "store"), f"{table}/00000.parquet"
    schema, rows = pq.read_schema(root / name), pq.read_table(root / name).to_pylist()
    change(rows)
    pq.write_table(pq.read_table(root / name).from_pylist(rows, schema), root / name)
    with pytest.raises(StoreError, match="is not the file that the manifest lists"):
        migrate(root, tmp_path / "new")
    raw = json.loads((root / "manifest.json").read_text())
    raw["files"][name] = vars_of(LocalStorage(root), name)
    (root / "manifest.json").write_text(json.dumps(raw))
    stem = name.removesuffix(".parquet").partition("/")[2]
    with pytest.raises(StoreError, match=rf"1 of 3 shards of .* as they are stored: {stem}: episode .*({message})"):
        migrate(root, tmp_path / "again")
    with pytest.raises(StoreError, match=r"unfinished store of `pivot migrate`"):
        Store.open(tmp_path / "again")


def test_killed_at_any_change_the_same_call_goes_on(fresh: Path, older: Path, tmp_path: Path) -> None:
    with mortal(Fate()) as fate:
        migrate(older, tmp_path / "undisturbed")
    before = fingerprint(older)
    for moment in sorted({len(fate.changes), *random.Random(5).sample(range(2, len(fate.changes)), 2)}):
        target = tmp_path / str(moment)
        with mortal(Fate(moment)), pytest.raises(Killed):
            migrate(older, target)
        assert_nothing_is_torn(target)
        with pytest.raises(PivotError, match=r"pivot migrate STORE --out|holds no run"):
            Store.open(target)
        migrate(older, target)
        assert fingerprint(target) == fingerprint(fresh), f"killed before {fate.changes[moment - 1]}"
    assert fingerprint(older) == before


def test_the_command_says_what_it_made(older: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    shown = run("migrate", older, "--out", target, "--workers", "1")
    assert f"{target} holds the 15 episodes of {older} in 3 shards of up to 2 levels" in shown
