"""Exports for trainers: bytes, resume, every environment, refusals, and planted defects that verify must find."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pivot
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.core.errors import ConfigError, PluginError, StoreError
from pivot.core.plugins import names
from pivot.core.storage import LocalStorage
from pivot.datasets.export.on_disk import RECORD, ExportPlan
from pivot.datasets.store.config import solver_type
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import TableSchema
from pivot.datasets.store.store import Store
from pivot.tests.dataset.export_rows import CHECKS as KINDS
from pivot.tests.dataset.export_rows import Facts, export_problems, row_problems, rows_of
from pivot.tests.dataset.plants import other
from pivot.tests.stores import contents_of

Row = dict[str, Any]


@pytest.fixture(scope="module")
def store(small_store: Path) -> Path:
    return small_store


@pytest.fixture(scope="module")
def exports(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    for kind in KINDS:
        pivot.export(store, root / kind, format=kind, workers=1)
    return root


def _shown(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents_of(root).items() if not name.startswith(".")}


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_holds(store: Path, exports: Path, kind: str) -> None:
    assert export_problems(store, exports / kind) == []


def test_bytes_depend_neither_on_workers_nor_on_interruptions(
    store: Path, exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch rows that depend on who wrote them, or an export that starts again from nothing."""
    pivot.export(store, tmp_path / "many", format="pairs", workers=2)
    assert contents_of(tmp_path / "many") == contents_of(exports / "pairs")
    from pivot.flows import export as flow

    made, shards = flow.shard_tables, list[str]()

    def dies(exporter: Any, store: Any, shard: Any, *rest: Any) -> Any:
        shards.append(shard.stem)
        if len(shards) == 3:
            raise KeyboardInterrupt
        return made(exporter, store, shard, *rest)

    monkeypatch.setattr(flow, "shard_tables", dies)
    with pytest.raises(KeyboardInterrupt):
        pivot.export(store, tmp_path / "killed", format="pairs", workers=1)
    assert not (tmp_path / "killed" / RECORD).exists()
    pivot.export(store, tmp_path / "killed", format="pairs", workers=1)
    assert len(shards) == 5  # two of four shards were kept, the third was rebuilt
    assert _shown(tmp_path / "killed") == _shown(exports / "pairs")


def test_each_side_of_the_split_is_kept(store: Path, exports: Path) -> None:
    def episodes(paths: Iterable[Path]) -> set[str]:
        return {name for path in paths for name in pq.read_table(path)["episode_id"].to_pylist()}

    mine = episodes((exports / "pairs").rglob("train/*.parquet"))
    assert mine
    assert mine <= episodes(path for path in store.glob("dataset/*/train-*.parquet") if "_episodes" not in str(path))


def test_environments_and_settings_that_do_not_exist_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environments: found 'sokobn'"):
        pivot.export(store, tmp_path / "none", format="pairs", environments=["sokobn"])
    with pytest.raises(ConfigError, match="setting of export credit: rule: found 'verl'"):
        pivot.export(store, tmp_path / "none", format="credit", settings={"rule": "verl"})


# Lies


def _schema(kind: str) -> TableSchema:
    return ExportPlan(kind, {}, (), "").exporter().schema()  # pyright: ignore[reportAttributeAccessIssue]


def _plant(root: Path, kind: str, column: str) -> bool:
    """Change one cell of a column that is not null, and rewrite the digests; return whether there was one."""
    schema = _schema(kind)
    type_of = schema.arrow.field(column).type
    for path in sorted((root / kind).rglob("*.parquet")):
        rows = pq.read_table(path).to_pylist()
        changed = next((row for row in rows if row[column] is not None), None)
        if changed is None:
            continue
        changed[column] = other(changed[column], type_of)
        name = path.relative_to(root).as_posix()
        write_tables(LocalStorage(root), [(name, schema, schema.table(rows, features=True))])
        _sign(root)
        return True
    return False


def _sign(root: Path) -> None:
    """Make the record agree with the files."""
    storage, record = LocalStorage(root), json.loads((root / RECORD).read_text())
    for name in record["files"]:
        record["files"][name] = asdict(storage.record(name))
    storage.write_json(RECORD, record)


@pytest.mark.parametrize(
    "kind", [kind if kind in ("credit", "pairs") else pytest.param(kind, marks=pytest.mark.plants) for kind in KINDS]
)
def test_every_planted_lie_is_found(store: Path, tmp_path: Path, kind: str) -> None:
    """Catch a column that verify does not compare, so that an export may say anything in it."""
    planted = 0
    pivot.export(store, tmp_path / "whole", format=kind, environments=["frozenlake"])
    for column in _schema(kind).names:
        target = tmp_path / "lie"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", target)
        if _plant(target, kind, column):
            planted += 1
            assert any(column in each or "pictures" in each for each in export_problems(store, target)), column
    assert planted >= len(_schema(kind).names) - 3


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_proved_without_the_code_that_wrote_them(store: Path, exports: Path, kind: str) -> None:
    opened = Store.open(store)
    facts = Facts(opened, opened.config.shards()[0])
    rows = [row for row in rows_of(exports / kind, kind) if row["episode_id"] in facts.episodes]
    assert rows
    assert not [problem for row in rows for problem in row_problems(kind, row, facts)]
    if column := {"pairs": "chosen_from", "corrections": "thought"}.get(kind):
        assert {row[column] for row in rows} >= {"sibling", "witness" if kind == "pairs" else "template"}
    facts.close()


@pytest.mark.parametrize(
    "defect",
    (
        *("extra", "missing", "card", "manifest", "unsigned", "rows", "split", "order", "twice"),
        *("settings", "environments", "version", "sibling", "page"),
    ),
)
def test_lies_of_files_are_found(store: Path, exports: Path, tmp_path: Path, defect: str) -> None:
    target = tmp_path / "lie"
    shutil.copytree(exports / ("credit" if defect == "settings" else "pairs"), target)
    first = min(target.rglob("*.parquet"))
    record = json.loads((target / RECORD).read_text())
    lies = {"settings": {"rule": "slack"}, "environments": ["sokoban"], "version": "0.0", "manifest": "0" * 64}
    if defect == "extra":
        shutil.copy(first, target / "pairs" / "more.parquet")
    elif defect == "missing":
        first.unlink()
    elif defect == "card":
        card = target / "README.md"
        card.write_text(card.read_text().replace("exact", "certain"))
        _sign(target)
    elif defect == "unsigned":
        first.write_bytes(first.read_bytes()[:-1])
    elif defect in lies:
        (target / RECORD).write_text(json.dumps(record | {defect: lies[defect]}))
    elif defect == "split":
        moved = first.parent.parent / ("train" if first.parent.name == "validation" else "validation") / "00077.parquet"
        moved.parent.mkdir(exist_ok=True)
        first.rename(moved)
        old, new = (path.relative_to(target).as_posix() for path in (first, moved))
        record["files"][new] = record["files"].pop(old)
        (target / RECORD).write_text(json.dumps(record))
    elif defect == "page":
        (target / "pairs" / "page.html").write_text("<p>More rows</p>")
        record["files"]["pairs/page.html"] = asdict(LocalStorage(target).record("pairs/page.html"))
        (target / RECORD).write_text(json.dumps(record))
    else:
        _change_rows(target, defect)
        _sign(target)
    assert export_problems(store, target)


def _change_rows(target: Path, defect: str) -> None:
    """Plant a defect that spans rows of the first file with at least two."""
    path = next(path for path in sorted(target.rglob("*.parquet")) if pq.read_metadata(path).num_rows > 1)
    table = pq.read_table(path)
    rows = table.to_pylist()
    if defect == "order":
        rows.reverse()
    elif defect == "twice":
        rows.append(rows[-1])
    elif defect == "sibling":
        row = next(row for row in rows if row["sibling_id"] is not None)
        row |= {"chosen_from": "witness", "sibling_id": None, "sibling_t": None}
    else:
        rows = rows[1:]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def test_an_export_of_nights_is_whole_and_proved(tmp_path: Path) -> None:
    root, config = tmp_path / "nights", {"environments": {"frozenlake": {"tasks": 2}}, "rollouts": 4}
    more = {"environments": {"frozenlake": {"tasks": 1}, "sokoban": {"tasks": 1}}, "rollouts": 4, "seed": 1}
    pivot.build(config, root / "2026-01-01")
    pivot.export(root, tmp_path / "alone", format="pairs")
    pivot.build(more, root / "2026-01-02")
    for kind in ("pairs", "credit"):
        pivot.export(root, tmp_path / kind, format=kind)
        assert export_problems(root, tmp_path / kind) == []
    paths = [*(tmp_path / "pairs").rglob("*.parquet")]
    assert {path.relative_to(tmp_path / "pairs").parts[0] for path in paths} == {"2026-01-01", "2026-01-02"}
    assert {row["env"] for path in paths for row in pq.read_table(path).to_pylist()} == {"frozenlake", "sokoban"}
    assert any("export again" in each for each in export_problems(root, tmp_path / "alone")), "the night came later"
    shutil.rmtree(tmp_path / "pairs" / "2026-01-02")
    record = json.loads((tmp_path / "pairs" / RECORD).read_text())
    record["files"] = {name: each for name, each in record["files"].items() if not name.startswith("2026-01-02/")}
    (tmp_path / "pairs" / RECORD).write_text(json.dumps(record))
    assert any("2026-01-02" in each and "missing" in each for each in export_problems(root, tmp_path / "pairs"))


def test_what_cannot_be_exported_says_what_to_do(store: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"'pair'.*pairs"):
        pivot.export(store, tmp_path / "out", format="pair")
    with pytest.raises(StoreError, match="so it is not a PIVOT store; make one"):
        pivot.export(tmp_path / "nowhere", tmp_path / "out", format="pairs")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"holds 'thesis.txt'.*choose another --out"):
        pivot.export(store, tmp_path / "mine", format="pairs")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "dear"
    before = contents_of(store)
    for inside in (store, store / "dataset", store / "new"):
        with pytest.raises(ConfigError):
            pivot.export(store, inside, format="pairs")
    assert contents_of(store) == before


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
        split = "task" if env == "sokoban" else "episode"
        rollouts = 4 if env == "navigation" else 2
        pivot.build({"environments": {env: run}, "rollouts": rollouts, "split": split}, made[env])
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
    assert rows and {row["certificate_kind"] for row in rows} == {STRENGTH[env]}
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| {env} | {STRENGTH[env]} |" in card and ("no level" in card) == (env == "sokoban")
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
