"""An export on disk: its record, its rows shard by shard, and the files that describe it.

``export.json``, written last, has the format and its settings, the digest of the manifest of the store, and the digest
of every file. ``README.md`` is the card with a config per environment.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...core import plugins
from ...core.errors import ConfigError, NoStoreError, StoreError
from ...core.identity import digest
from ...core.plugins import read_settings
from ...core.storage import FileRecord, Storage
from ..store.config import Shard, solver_type
from ..store.dataset_rows import ShardSplit, shard_sides
from ..store.nights import Nights, environments_of
from ..store.parquet import count_rows
from ..store.schema import TableSchema
from ..store.splits import SIDES
from ..store.store import MANIFEST, Store
from .base import Exporter, LabelledShard, TrainerExporter
from .card import CARD, PLAIN, configs_section, rendered, terms_of

RECORD = "export.json"
"""Record of an export."""
EDITION = "1"
"""Version of the layout of exports, raised with every change of it."""

_TEXT = """# PIVOT export: %(name)s

%(summary)s Made by `pivot export %(name)s` from a store of PIVOT; `pivot verify STORE --export DIR` proves every row
against it. `episode_id`, `t` and `label_version` name the rows of the store behind each row. Both sides of its split
are kept: %(levels)s on both.

| environment | certificate | train | validation |
|---|---|---|---|
%(rows)s

Settings: `%(settings)s`.

| column | meaning |
|---|---|
%(columns)s
"""


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Format, settings, environments and store of an export."""

    name: str
    """Registered name of the format."""
    settings: Mapping[str, Any]
    """Resolved settings of the format."""
    environments: tuple[str, ...]
    manifest: str
    """Digest of the manifest of the store, or of those of the nights."""

    @classmethod
    def of(cls, name: str, settings: Mapping[str, Any], environments: Sequence[str], nights: Nights) -> "ExportPlan":
        """Resolve an export of a store, or of the nights of a folder.

        Raises:
            PluginError: the format is unknown.
            ConfigError: a setting or an environment cannot be used.
        """
        kind: type[Exporter] = plugins.load("exporters", name)
        resolved = read_settings(kind.config_type, settings, f"setting of export {name}: ")
        names = environments_of(nights)
        if unknown := [env for env in environments if env not in names]:
            raise ConfigError(
                f"environments: found {unknown[0]!r}, expected environments of the store: {', '.join(names)}"
            )
        chosen = [env for env in names if env in environments or not environments]
        for env in chosen:
            refusal = kind.refusal(solver_type(env))
            if refusal is not None:
                others = [each for each in names if kind.refusal(solver_type(each)) is None]
                hint = f"choose the others with --env {' --env '.join(others)}" if others else "export another format"
                raise ConfigError(f"export {name}: found environment {env}: {refusal}; {hint}")
        manifests = {prefix: store.storage.record(MANIFEST).sha256 for prefix, store in nights.items()}
        whole = manifests[""] if "" in manifests else digest(manifests)
        return cls(name, resolved.model_dump(mode="json"), tuple(chosen), whole)

    def exporter(self) -> Exporter:
        """Make the exporter.

        Raises:
            PluginError, ConfigError: the format or its settings cannot be used here.
        """
        kind: type[Exporter] = plugins.load("exporters", self.name)
        return kind(read_settings(kind.config_type, self.settings, f"setting of export {self.name}: "))

    def record(self) -> dict[str, Any]:
        """Return the content of ``export.json``."""
        return {
            "format": self.name,
            "settings": dict(self.settings),
            "environments": list(self.environments),
            "manifest": self.manifest,
            "version": f"{EDITION}.{plugins.load('exporters', self.name).version}",
        }


def shard_tables(
    exporter: Exporter, store: Store, shard: Shard, split: ShardSplit, prefix: str
) -> list[tuple[str, TableSchema, pa.Table]]:
    """Return the tables of a shard with the names of their files; tables without rows included."""
    tables = exporter.tables(LabelledShard(store, shard, shard_sides(store, shard, split)))
    return [
        (f"{prefix}{exporter.file(schema, shard, side)}", schema, table) for (schema, side), table in tables.items()
    ]


def described(plan: ExportPlan, nights: Nights, storage: Storage, files: Mapping[str, FileRecord]) -> dict[str, bytes]:
    """Return the files that describe an export, by name, from its Parquet files; none for a format without summary."""
    exporter = plan.exporter()
    if not isinstance(exporter, TrainerExporter):
        return {}
    folders = _folders(files)
    schema, licences = exporter.schema(), sorted({terms_of(store.run).licence for store in nights.values()})
    rows = {folder: sum(count_rows(storage, name) for name in names) for folder, names in folders.items()}
    splits = {store.config.split for store in nights.values()}
    kinds = {env: run.solver().kind for store in nights.values() for env, run in store.run.envs.items()}
    cells = [
        f"| {env} | {kinds[env]} | "
        + " | ".join(str(sum(rows[each] for each in folders if each[1:] == (env, side))) for side in SIDES)
        + " |"
        for env in plan.environments
    ]
    values = {
        "name": plan.name,
        "summary": exporter.summary,
        "levels": "no level of a store is" if splits == {"task"} else "a level can be",
        "rows": "\n".join(cells),
        "settings": json.dumps(dict(plan.settings), sort_keys=True),
        "columns": "\n".join(f"| `{column.name}` | {column.doc} |" for column in schema.columns),
    }
    licence = licences[0] if len(licences) == 1 else "unknown"
    configs = _configs(plan, folders, files)
    card = rendered(PLAIN, {"text": _TEXT % values}, license=licence, pretty_name=f"PIVOT {plan.name}", configs=configs)
    return {CARD: card.encode()}


Folder = tuple[str, str, str]
"""Prefix with the table, environment and split of a folder of files."""


def _folders(files: Mapping[str, FileRecord]) -> dict[Folder, list[str]]:
    folders: dict[Folder, list[str]] = {}
    for name in sorted(files):
        head, env, side, _ = name.rsplit("/", 3)
        folders.setdefault((head, env, side), []).append(name)
    return folders


def _configs(
    plan: ExportPlan, folders: Mapping[Folder, Sequence[str]], files: Mapping[str, FileRecord]
) -> list[dict[str, Any]]:
    """Return the configs: one of all environments, then one per environment.

    The first has the name that ms-swift asks for when it gets a folder alone.
    """

    def config(name: str, environments: Sequence[str]) -> tuple[str, dict[str, list[str]], str]:
        chosen = {folder: names for folder, names in folders.items() if folder[1] in environments}
        sides = {side: [f"{'/'.join(each)}/*.parquet" for each in chosen if each[2] == side] for side in SIDES}
        return name, sides, digest({each: files[each].sha256 for names in chosen.values() for each in names})

    return configs_section([config("default", plan.environments), *(config(env, [env]) for env in plan.environments)])


def read_record(storage: Storage) -> tuple[dict[str, Any], dict[str, FileRecord]]:
    """Return the record of a finished export and the records of its files.

    Raises:
        StoreError: the export is missing or unfinished, or its record cannot be read.
    """
    if storage.stat(RECORD) is None:
        raise NoStoreError(f"{storage.address()} is not a finished export (no {RECORD}); run pivot export again")
    raw = storage.read_json(RECORD)
    try:
        files = {str(name): FileRecord.decode(entry) for name, entry in raw["files"].items()}
        return {name: raw[name] for name in ("format", "settings", "environments", "manifest", "version")}, files
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{storage.address(RECORD)} is not the record of an export ({error!r}); run pivot export again"
        ) from error
