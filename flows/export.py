"""Export a finished store in a format of the group ``pivot.exporters``; the store itself stays as it is."""

from dataclasses import asdict, dataclass

from .. import plugins
from ..datasets.config import Shard
from ..datasets.export import ShardSplit, plan_split, shard_sides
from ..datasets.exporters.base import Exporter, LabelledShard
from ..datasets.parquet import write_tables
from ..datasets.parts import members_of
from ..datasets.progress import Reporter
from ..datasets.store import MANIFEST, Store
from ..errors import ConfigError
from ..storage import Address, FileRecord, Storage, open_storage
from .copying import check_source, refuse_to_mix
from .engines.base import WorkerPool

RECORD = "export.json"
"""Record of an export, written last: its format, the manifest of its store, and its files."""
STAGE = "export"


@dataclass(frozen=True, slots=True)
class Export:
    """The outcome of an export."""

    root: Address
    rows: int
    files: dict[str, FileRecord]


def export_as(name: str, root: Address, target: Address, pool: WorkerPool, reporter: Reporter) -> Export:
    """Write every shard of a finished store, later parts included, in one format.

    Args:
        name: registered name of the format.
        root: the finished store.
        target: folder of the export; new, empty, or with an export of this format, which is replaced.
        pool: exports the shards.
        reporter: gets the progress, in episodes.

    Raises:
        PluginError: the format is unknown, or its answer does not fit the contract.
        StoreError: the store is missing, unfinished or being written, or a file cannot be read or written.
        ConfigError: the target holds something else, or is in the store.
    """
    plugins.load("exporters", name)
    check_source(root)
    refuse_to_mix(root, target)
    source = Store.open(root)
    _earlier_files(open_storage(target), name)
    with open_storage(target).lock() as leased:
        storage = open_storage(leased)
        for each in _earlier_files(storage, name):
            storage.delete(each)
        members = members_of(source)
        calls = [
            (name, member, shard, split, leased, prefix)
            for prefix, member in members.items()
            for shard, split in plan_split(member).items()
        ]
        reporter.start(STAGE, sum(_episodes(member, shard) for _, member, shard, *_ in calls))
        rows, files = 0, dict[str, FileRecord]()
        for episodes, count, records in pool.stream(_export_shard, calls):
            rows, files = rows + count, files | records
            reporter.advance(STAGE, episodes)
        reporter.finish(STAGE)
        manifest = source.storage.record(MANIFEST).sha256
        entries = {file: asdict(files[file]) for file in sorted(files)}
        storage.write_json(RECORD, {"format": name, "manifest": manifest, "files": entries})
    return Export(target, rows, files)


def _earlier_files(storage: Storage, name: str) -> list[str]:
    """Return the files of an earlier export of the same format; refuse a folder that holds anything else."""
    there = [each for each in storage.entries() if not each.startswith(".")]
    record = storage.read_json(RECORD) if RECORD in there else None
    if there and not (isinstance(record, dict) and record.get("format") == name):
        raise ConfigError(
            f"{storage.address()} holds {there[0]!r}, expected an empty folder or an export of format {name}; choose "
            "another --out"
        )
    return there


def _episodes(store: Store, shard: Shard) -> int:
    return (shard.stop - shard.first) * store.config.rollouts


def _export_shard(
    name: str, store: Store, shard: Shard, split: ShardSplit, target: Address, prefix: str
) -> tuple[int, int, dict[str, FileRecord]]:
    """Write one shard; return its number of episodes, of rows, and its files."""
    kind: type[Exporter] = plugins.load("exporters", name)
    exporter = kind(kind.config_type())
    tables = exporter.tables(LabelledShard(store, shard, shard_sides(store, shard, split)))
    named = [
        (f"{prefix}{exporter.file(schema, shard, side)}", schema, table) for (schema, side), table in tables.items()
    ]
    rows = sum(table.num_rows for _, _, table in named)
    return _episodes(store, shard), rows, write_tables(open_storage(target), named, sparse=True)
