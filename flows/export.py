"""Export a finished store in a format of the group ``pivot.exporters``; the store is not changed.

Each shard leaves a receipt when its files are written, so the same command resumes after an interruption. The record of
the export is written last, and the receipts are removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Unpack

from ..core import admission, plugins
from ..core.errors import ConfigError
from ..core.identity import digest
from ..core.progress import Reporter
from ..core.storage import Address, FileRecord, Storage, open_storage, parse_address
from ..core.storage.base import Receipt
from ..datasets.export.base import Exporter
from ..datasets.export.on_disk import RECORD, ExportPlan, described, shard_tables
from ..datasets.store.config import Shard
from ..datasets.store.dataset_rows import ShardSplit, plan_split
from ..datasets.store.location import refuse_while_written
from ..datasets.store.nights import environments_of, nights_of
from ..datasets.store.parquet import write_tables
from ..datasets.store.schema import PROMPTS
from ..datasets.store.store import RECEIPTS, Store, refuse_unfinished_relabel
from .running import Running, pool_of, public

BEGUN = f"{RECEIPTS}/{RECORD}"
"""The plan of an unfinished export."""
STAGE = "export"


@dataclass(frozen=True, slots=True)
class Export:
    """The outcome of an export."""

    root: Address
    rows: int
    files: dict[str, FileRecord]


@public
def export(
    root: str | Address,
    out: str | Address,
    *,
    format: str = "dataset",
    settings: Mapping[str, Any] | None = None,
    environments: Sequence[str] = (),
    **running: Unpack[Running],
) -> Export:
    """Write a finished store in the format of a trainer; the store is not changed.

    Args:
        root: the finished store, or a folder of nights.
        out: folder of the export; new, empty, or with an export of the same format: a finished one is replaced, an
            unfinished one resumed.
        format: registered name of the format (group ``pivot.exporters``): ``credit``, ``corrections``, ``pairs``,
            ``privileged``, ``analyzer``, ``dataset``.
        settings: settings of the format, such as ``{"rule": "slack"}``.
        environments: environments of the store; all by default.
        **running: workers, reporter, engine, address and allow: :class:`~pivot.flows.running.Running`.

    Returns:
        The files, and their number of rows.

    Raises:
        PluginError: the format is unknown or cannot be used.
        StoreError: the store is missing, unfinished or being written.
        ConfigError: the folder holds something else, a setting cannot be used, or the certificate of an environment
            has no rows in this format.
    """
    kind: type[Exporter] = plugins.load("exporters", format)
    source, target = parse_address(root), parse_address(out)
    refuse_to_mix(source, target)
    nights = nights_of(source)
    for store in nights.values():
        check_source(store.root)
        store.check_files()
    plan = ExportPlan.of(format, settings or {}, environments, nights)
    if kind.plays:
        for store in nights.values():
            for env in {*plan.environments} & {*store.config.environments}:
                admission.require(store.run.envs[env].config.code)
    _refuse_foreign(open_storage(target), format)
    if kind.shows_prompts:
        for store in nights.values():
            _refuse_without_prompts(store, format)
    reporter = running.get("reporter") or Reporter()
    with pool_of(running, environments_of(nights), target) as pool, open_storage(target).lock() as leased:
        storage = open_storage(leased)
        _refuse_foreign(storage, format)
        _begin(storage, plan.record())
        calls = [
            (plan, store, shard, split, leased, prefix)
            for prefix, store in nights.items()
            for shard, split in plan_split(store).items()
            if shard.env in plan.environments
        ]
        reporter.start(STAGE, sum(_episodes(store, shard) for _, store, shard, *_ in calls))
        rows, files = 0, dict[str, FileRecord]()
        for episodes, count, records in pool.stream(_export_shard, calls):
            rows, files = rows + count, files | records
            reporter.advance(STAGE, episodes)
        reporter.finish(STAGE)
        files = {file: files[file] for file in sorted(files)}
        for file, content in described(plan, nights, storage, files).items():
            files[file] = storage.write_bytes(file, content)
        entries = {file: asdict(record) for file, record in files.items()}
        storage.write_json(RECORD, plan.record() | {"files": entries})
        storage.delete(RECEIPTS)
    return Export(target, rows, files)


def check_source(root: Address) -> None:
    """Refuse a store whose files may change, or be between two versions, during reading.

    Raises:
        StoreError: a run holds its lock, or a relabel was interrupted; or it holds a link or a special file.
    """
    refuse_while_written(root)
    open_storage(root).check_contents()
    refuse_unfinished_relabel(root)


def refuse_to_mix(source: Address, target: Address) -> None:
    """Refuse to write into the store that is read.

    Raises:
        ConfigError: the target is the source, or below it.
    """
    one, other = (str(each.resolve()) if isinstance(each, Path) else str(each) for each in (source, target))
    if f"{other}/".startswith(f"{one}/"):
        raise ConfigError(f"{target} is {'' if one == other else 'in '}the store that is read; choose another --out")


def _refuse_without_prompts(store: Store, name: str) -> None:
    """Refuse an import whose source recorded no prompt.

    Raises:
        ConfigError: no episode has a prompt.
    """
    shards = store.config.shards()
    if store.is_imported and not any(store.read(PROMPTS, shard, ["prompt_hash"]).num_rows for shard in shards):
        raise ConfigError(
            f"export {name}: {store.root} has imported episodes without prompts, expected what the agent was sent; "
            "record the messages of each turn with Recorder.note(messages=...) or in the field messages of the turn, "
            "and import again"
        )


def _refuse_foreign(storage: Storage, name: str) -> None:
    """Refuse a folder with anything but an export of the same format."""
    there = [each for each in storage.entries() if not each.startswith(".")]
    records = [storage.read_json(each) for each in (RECORD, BEGUN) if storage.stat(each) is not None]
    if there and not any(isinstance(record, dict) and record.get("format") == name for record in records):
        raise ConfigError(
            f"{storage.address()} holds {there[0]!r}, expected an empty folder or an export of format {name}; choose "
            "another --out"
        )


def _begin(storage: Storage, plan: dict[str, Any]) -> None:
    """Remove an earlier export, except an unfinished one of the same plan."""
    if storage.stat(RECORD) is None and storage.stat(BEGUN) is not None and storage.read_json(BEGUN) == plan:
        return
    # The plan is written first, so that the folder of an interrupted export is recognised as one.
    storage.write_json(BEGUN, {"format": plan["format"]})
    for each in storage.entries():
        if not each.startswith("."):
            storage.delete(each)
    storage.delete(f"{RECEIPTS}/{STAGE}")
    storage.write_json(BEGUN, plan)


def _episodes(store: Store, shard: Shard) -> int:
    return (shard.stop - shard.first) * store.config.rollouts


def _export_shard(
    plan: ExportPlan, store: Store, shard: Shard, split: ShardSplit, target: Address, prefix: str
) -> tuple[int, int, dict[str, FileRecord]]:
    """Write one shard unless it is written; return its numbers of episodes and rows, and its files."""
    storage = open_storage(target)
    name, inputs = f"{RECEIPTS}/{STAGE}/{prefix}{shard.stem}.json", digest(plan.record())
    receipt = Receipt.read(storage, name)
    if receipt is not None and receipt.holds(storage, inputs):
        return _episodes(store, shard), receipt.facts["rows"], receipt.files
    named = shard_tables(plan.exporter(), store, shard, split, prefix)
    rows = sum(table.num_rows for _, _, table in named)
    files = write_tables(storage, named, sparse=True)
    Receipt(inputs, files, {"rows": rows}).write(storage, name)
    return _episodes(store, shard), rows, files
