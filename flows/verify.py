"""Verify a store, a folder of nights or an export on workers: labels and rows are derived once more."""

from typing import Unpack

from ..core.progress import Reporter
from ..core.storage import Address, open_storage, parse_address
from ..datasets.export.on_disk import read_record
from ..datasets.store.location import refuse_while_written
from ..datasets.store.nights import environments_of, nights_of
from ..datasets.verify.exports import verify_export
from ..datasets.verify.report import Report
from ..datasets.verify.verify import verify_store
from .running import Running, pool_of, public


@public
def verify(
    root: str | Address, *, sources: bool = False, export: str | Address | None = None, **running: Unpack[Running]
) -> Report:
    """Re-derive every label of a store from its rows, and check that no file was changed, removed or added.

    Args:
        root: the finished store, or a folder of nights.
        export: folder of an export of this store or folder, whose rows are then checked against it, too.
        sources: read paths that ``run.json`` names outside the store, such as a folder of targets.
        **running: workers, reporter, engine, address and allow: :class:`~pivot.flows.running.Running`.

    Returns:
        The problems found (none if the store is valid), and what was checked.

    Raises:
        StoreError: the store is missing or unfinished, or a run is writing it.
        GenerationError, PluginError, ConfigError: its config cannot be carried out here.
    """
    store = parse_address(root)
    refuse_while_written(store)
    nights, report = nights_of(store), Report()
    if export is not None:
        read_record(open_storage(parse_address(export)))  # before hours of proofs
    with pool_of(running, environments_of(nights), store) as pool:
        for folder, night in nights.items():
            proved = verify_store(night.root, running.get("reporter") or Reporter(), pool.stream, follow=sources)
            report.add(folder.rstrip("/"), proved)
        if export is not None:
            target = parse_address(export)
            proved = verify_export(store, target, running.get("reporter") or Reporter(), pool.stream)
            report.problems += proved.problems
            report.count(proved.checked)
    return report
