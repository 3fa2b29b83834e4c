"""Stores for tests, and functions that damage a copy: one cell, with or without a matching manifest."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.core.progress import Reporter
from pivot.core.storage import Address, LocalStorage
from pivot.datasets.sql.views import query
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import DATASET, DATASET_EPISODES, LABELS, STORE_TABLES, TableSchema
from pivot.datasets.store.store import DATASET_FOLDER, Store
from pivot.datasets.verify.verify import verify_store

Rows = list[dict[str, Any]]
Change = Callable[[Rows], Rows | None]


def build_small(root: Path, **fields: Any) -> Path:
    """Both environments, three tasks of eight rollouts each, two shards each."""
    runs = {name: {"tasks": 3, "settings": {}} for name in ("sokoban", "frozenlake")}
    pivot.build({"environments": runs, "tasks_per_shard": 2} | fields, root)
    return root


def build_tiny(root: Path, *names: str, **fields: Any) -> Path:
    """Two tasks of two rollouts in one shard per environment, by a policy that rarely succeeds."""
    runs = {name: {"tasks": 2, "settings": {}} for name in names or ("sokoban", "frozenlake")}
    habits = {name: {"skill": -20.0, "evenness": 0.0} for name in ("sokoban", "frozenlake")}
    policy = {"name": "scripted", "options": {"habits": habits}}
    pivot.build({"environments": runs, "rollouts": 2, "policy": policy} | fields, root)
    return root


def built_once(config: dict[str, Any]) -> Any:
    """Return a fixture of a module: the store of a config. Copy it before changing anything."""

    @pytest.fixture(scope="module")
    def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
        root = tmp_path_factory.mktemp("built") / "store"
        pivot.build(config, root)
        return root

    return store


def copy_store(root: Path, target: Path) -> Path:
    """Copy a store and replace the target."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target)
    return target


def contents_of(root: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, by its relative path."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def rewrite_manifest(root: Path) -> None:
    """Rewrite the manifest to match the current files."""
    store = Store.open(root)
    names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    kept = [name for name in names if not name.startswith(".") and name not in ("manifest.json", "pivot.duckdb")]
    store.write_manifest({name: store.storage.record(name) for name in kept})


def problems(root: Address) -> list[str]:
    """Return the problems that `pivot verify` reports."""
    return verify_store(root, Reporter()).problems


class Patient:
    """A copy of a store that tests damage, examine and restore."""

    def __init__(self, source: Path, root: Path) -> None:
        """Copy the store at ``source`` to ``root``."""
        self.source = source
        self.root = copy_store(source, root)

    def file(self, env: str, table: str) -> str:
        """Return the first file with rows of one environment in a table or dataset folder."""
        return next(name for name in table_files(self.source, env) if name.startswith(f"{table}/"))

    def found(self) -> list[str]:
        """Return the problems that `pivot verify` reports after the manifest was rewritten to match the damage."""
        rewrite_manifest(self.root)
        return problems(self.root)

    def heal(self) -> None:
        """Undo all damage."""
        whole = {path.relative_to(self.source) for path in self.source.rglob("*") if path.is_file()}
        present = {path.relative_to(self.root) for path in self.root.rglob("*") if path.is_file()}
        for extra in present - whole:
            (self.root / extra).unlink()
        folders = [path for path in self.root.rglob("*") if path.is_dir() and not path.is_symlink()]
        for folder in sorted(folders, reverse=True):
            if not any(folder.iterdir()) and not (self.source / folder.relative_to(self.root)).exists():
                folder.rmdir()
        for path in whole:
            if path not in present or (self.root / path).read_bytes() != (self.source / path).read_bytes():
                shutil.copy(self.source / path, self.root / path)


def schema_of(name: str) -> TableSchema:
    """Return the schema of a store file, from its path."""
    folder, *rest = name.split("/")
    if folder == DATASET_FOLDER:
        return DATASET_EPISODES if rest[0].endswith("_episodes") else DATASET
    return {schema.name: schema for schema in (*STORE_TABLES, IMPORTS, LABELS)}[folder]


def table_files(root: Path, env: str) -> list[str]:
    """Return the relative paths of all Parquet files with rows of one environment."""
    store = Store.open(root)
    shards = {shard.stem.split("/")[1] for shard in store.config.shards() if shard.env == env}
    names: list[str] = []
    for path in sorted(root.rglob("*.parquet")):
        name = path.relative_to(root).as_posix()
        mine = path.parent.name in (env, f"{env}_episodes") and any(number in path.stem for number in shards)
        if mine and pq.read_metadata(path).num_rows:
            names.append(name)
    return names


def need_at_pivots(root: Path) -> tuple[int, int]:
    """Return the number of labels, and of labels whose certificate agrees with `need` of the pivot's step."""
    sql = """SELECT count(*), count(*) FILTER (s.need IS NOT DISTINCT FROM f.certificate.before AND s.state IS NOT NULL)
             FROM failures f JOIN steps s ON s.episode_id = f.episode_id AND s.t = f.pivot_step"""
    return query(root, sql)[1][0]


def read_rows(root: Path, name: str) -> Rows:
    """The rows of one file of a store."""
    return pq.read_table(root / name).to_pylist()


def stored_rows(root: Path, env: str, beginning: str) -> Rows:
    """The rows of one environment in all files whose path begins so."""
    return [row for name in table_files(root, env) if name.startswith(beginning) for row in read_rows(root, name)]


def change_rows(root: Path, name: str, change: Change) -> None:
    """Rewrite one file of a store with its rows changed, in place or by the returned ones."""
    schema = schema_of(name)
    rows = read_rows(root, name)
    changed = change(rows)
    rows = rows if changed is None else changed
    is_dataset = name.startswith(f"{DATASET_FOLDER}/")
    write_tables(LocalStorage(root), [(name, schema, schema.table(rows, features=is_dataset))])
