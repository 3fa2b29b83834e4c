"""``pivot verify STORE --export DIR``: prove an export against its store.

The record must name this store as it is, every file must have its recorded digest, and no other file may be there.
Tables and card are then rebuilt from the store with the code of the format, and compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...core.errors import PivotError, StoreError
from ...core.progress import Reporter
from ...core.storage import Address, FileRecord, Storage, open_storage
from ..export.on_disk import RECORD, ExportPlan, described, read_record, shard_tables
from ..store.config import Shard
from ..store.dataset_rows import ShardSplit, plan_split
from ..store.nights import Nights, nights_of
from ..store.parquet import read_table
from ..store.schema import TableSchema
from ..store.store import Store
from .compare import contrast
from .report import Report

Stream = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]]
STAGE = "verify export"

ShardOutcome = tuple[list[str], int, list[str]]
"""Problems, number of rows, and the names of the files that the shard has to have."""


def verify_export(root: Address, target: Address, progress: Reporter, stream: Stream) -> Report:
    """Verify an export against its source store; the rows of the store are verified separately.

    Args:
        root: the finished store, or the folder of nights.
        target: folder of the export.
        progress: gets the progress, in shards.
        stream: runs the shards.

    Raises:
        StoreError: the store or the export is missing or unfinished.
        PluginError, ConfigError: the format of the export is not installed, or its settings cannot be used.
    """
    report = Report()
    nights, storage = nights_of(root), open_storage(target)
    record, files = read_record(storage)
    plan = ExportPlan.of(str(record["format"]), dict(record["settings"]), list(record["environments"]), nights)
    for name, right in plan.record().items():
        if record[name] != right:
            report.problems.append(
                f"{storage.address(RECORD)}: {name} is {record[name]!r}, this store and version give {right!r}; "
                "export again"
            )
    report.problems += _file_problems(storage, files)
    calls = [
        (plan, store, shard, split, target, prefix)
        for prefix, store in nights.items()
        for shard, split in plan_split(store).items()
        if shard.env in plan.environments
    ]
    progress.start(STAGE, len(calls))
    rows, expected = 0, set[str]()
    for problems, count, names in stream(_verify_shard, calls):
        report.problems += problems
        rows += count
        expected.update(names)
        progress.advance(STAGE, 1)
    progress.finish(STAGE)
    parquet = {name: each for name, each in files.items() if name.endswith(".parquet")}
    report.problems += [f"{storage.address(name)} is missing" for name in sorted(expected - parquet.keys())]
    report.problems += [
        f"{storage.address(name)}: the store has no rows for this file" for name in sorted(parquet.keys() - expected)
    ]
    report.problems += _description_problems(plan, nights, storage, files, parquet)
    report.count({f"rows of the export {plan.name}": rows, "files of the export": len(files)})
    report.problems.sort()
    return report


def _file_problems(storage: Storage, files: Mapping[str, FileRecord]) -> Iterator[str]:
    """Yield files that are missing, changed or not recorded."""
    there = {name for name in storage.listing() if not name.startswith(".") and name != RECORD}
    yield from (
        f"{storage.address(name)} is not part of the export; remove it" for name in sorted(there - files.keys())
    )
    for name, record in sorted(files.items()):
        if name not in there:
            yield f"{storage.address(name)} is missing; export again"
        elif storage.record(name) != record:
            yield f"{storage.address(name)} was changed: its digest is not the recorded one; export again"


def _description_problems(
    plan: ExportPlan,
    nights: Nights,
    storage: Storage,
    files: Mapping[str, FileRecord],
    parquet: Mapping[str, FileRecord],
) -> Iterator[str]:
    """Yield files that describe the export otherwise than its rows do."""
    try:
        right = described(plan, nights, storage, parquet)
    except (PivotError, OSError, ValueError, pa.ArrowException) as error:
        yield f"{storage.address()}: its card cannot be derived: {error}"
        return
    for name in sorted(right.keys() | (files.keys() - parquet.keys())):
        if name not in right:
            yield f"{storage.address(name)} does not belong to an export of format {plan.name}"
        elif name not in files or storage.stat(name) is None or storage.read_bytes(name) != right[name]:
            yield f"{storage.address(name)} is not what the rows of the export give; export again"


def _verify_shard(
    plan: ExportPlan, store: Store, shard: Shard, split: ShardSplit, target: Address, prefix: str
) -> ShardOutcome:
    storage = open_storage(target)
    problems, rows, names = list[str](), 0, list[str]()
    for name, schema, right in shard_tables(plan.exporter(), store, shard, split, prefix):
        if not right.num_rows:
            continue
        names.append(name)
        if storage.stat(name) is None:
            continue
        try:
            stored = read_table(storage, name, schema)
        except StoreError as error:
            problems.append(str(error))
            continue
        rows += stored.num_rows
        problems += [f"{storage.address(name)}: {problem}" for problem in _table_problems(schema, stored, right)]
    return problems, rows, names


def _table_problems(schema: TableSchema, stored: pa.Table, right: pa.Table) -> Iterator[str]:
    """Yield the differences of a table from the derived one: columns, features, or the first different row."""
    if not stored.schema.equals(right.schema) or (stored.schema.metadata or {}) != (right.schema.metadata or {}):
        yield f"its columns or features are not those of {schema.name} in this version"
        return
    if stored.num_rows != right.num_rows:
        yield f"it has {stored.num_rows} rows, the store gives {right.num_rows}"
    stored, right = stored.slice(0, right.num_rows), right.slice(0, stored.num_rows)
    if stored.equals(right):
        return
    for number, (one, other) in enumerate(zip(stored.to_pylist(), right.to_pylist(), strict=True)):
        if repr(one) != repr(other):
            yield contrast(f"row {number} ({other['episode_id']})", one, other)
            return
