"""Functions that read stores: verify, probe, bound, export, stats, query, report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from ..core.admission import Names
from ..core.plugins import read_settings
from ..core.progress import Reporter, Silent
from ..core.storage import Address, parse_address
from ..datasets.sql.views import connect, query_table
from ..datasets.store.config import PartConfig
from ..datasets.store.nights import environments_of, nights_of
from ..datasets.verify.exports import verify_export
from ..datasets.verify.limits import Limits, within
from ..datasets.verify.report import Report
from ..datasets.verify.verify import refuse_huge, refuse_while_written, verify_store
from ..flows.export import Export, export_as
from ..insight.probe.proof import probe_problems
from ..insight.probe.records import ProbeSettings
from ..insight.probe.run import ProbeResult, checked_store, probe_store
from ..insight.report.contents import Contents, Selection
from ..insight.report.site import write_report
from ..insight.stats import SUMMARY, summary_json
from .running import Running, address_of, pool_of, public, reporter_of


@public
def verify(
    root: str | Address,
    *,
    sources: bool = False,
    export: str | Address | None = None,
    limits: Limits | None = None,
    **running: Unpack[Running],
) -> Report:
    """Re-derive every label of a store from its rows, and check that no file was changed, removed or added.

    Args:
        root: the finished store, or a folder of nights.
        export: folder of an export of this store or folder, whose rows are then checked against it, too.
        sources: read paths that ``run.json`` names outside the store, such as a folder of targets.
        limits: time and memory for one shard, or one check of the whole store; by default 600 s and 1,024 MiB.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        The problems found (none if the store is valid), and what was checked.

    Raises:
        StoreError: the store is missing or unfinished, or a run is writing it.
        GenerationError, PluginError, ConfigError: its config cannot be carried out here.
    """
    store = address_of(root, running)
    limits = limits or Limits()
    refuse_while_written(store)
    refuse_huge(store, limits)
    nights, report = nights_of(store), Report()
    with pool_of(running, environments_of(nights), store, writes=False) as pool:
        for folder, night in nights.items():
            proved = verify_store(night.root, reporter_of(running), pool.stream, follow=sources, limits=limits)
            proved.problems += within(limits, "the probe", lambda night=night: probe_problems(night, follow=sources))
            report.add(folder.rstrip("/"), proved)
        if export is not None:
            target = address_of(export, running)
            proved = verify_export(store, target, reporter_of(running), pool.stream, limits)
            report.problems += proved.problems
            report.count(proved.checked)
    return report


@public
def probe(
    root: str | Address,
    settings: ProbeSettings | Mapping[str, Any] | None = None,
    *,
    policy: PartConfig | Mapping[str, Any] | None = None,
    **running: Unpack[Running],
) -> ProbeResult:
    """Replay the failures of a store from the pivot and from the steps next to it; rows go to ``DIR/probe``.

    Args:
        root: the finished store; its policy plays.
        settings: arms, resamples, discount, such as ``{"resamples": 8}``.
        policy: plays the retries of arm ``bound``, such as ``{"name": "openai", "options": {"model": "my-vlm"}}``; by
            default the policy of the store.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        The number of retries, and how many of them this call played.

    Raises:
        ConfigError: an arm is unknown, or the policy cannot play these environments.
        StoreError: the store is missing or unfinished, or another run writes it.
        ServerGoneError: the model does not answer any more; finished retries are kept.
    """
    if not isinstance(settings, ProbeSettings):
        settings = read_settings(ProbeSettings, settings or {}, "setting ")
    store = address_of(root, running)
    player = None if policy is None else PartConfig.model_validate(policy)
    environments = list(checked_store(store, settings, player).config.environments)
    with pool_of(running, environments, store) as pool:
        return probe_store(store, settings, reporter_of(running), pool.stream, player)


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
    """Write a finished store in the format of a trainer; the store stays as it is.

    Args:
        root: the finished store, or a folder of nights.
        out: folder of the export; new, empty, or with an export of the same format: a finished one is replaced, an
            unfinished one resumed.
        format: registered name of the format (group ``pivot.exporters``): ``credit``, ``corrections``, ``pairs``,
            ``privileged``, ``processbench``, ``analyzer``, ``dataset``.
        settings: settings of the format, such as ``{"layout": "swift"}``.
        environments: environments of the store; all by default.
        **running: workers, reporter, engine, address, follow_links and allow, see :class:`~pivot.api.running.Running`.

    Returns:
        The files, and their number of rows.

    Raises:
        PluginError: the format is unknown or cannot be used.
        StoreError: the store is missing, unfinished or being written.
        ConfigError: the folder holds something else, a setting cannot be used, or the certificate of an environment
            has no rows in this format.
    """
    source, target = address_of(root, running), address_of(out, running)
    names = environments_of(nights_of(source))
    with pool_of(running, names, target) as pool:
        return export_as(format, source, target, pool, reporter_of(running), settings, environments)


@public
def stats(root: str | Address, *, follow_links: bool = False) -> dict[str, Any]:
    """Return the summary of a store: for each view of ``pivot stats`` its rows; percentages are fractions.

    Args:
        root: the finished store, or a folder of nights.
        follow_links: follow links below the folder of your own store; without it they are refused.

    Raises:
        StoreError: the store is missing or unfinished, or one of its files is missing or torn.
    """
    store = parse_address(root, follow_links=follow_links)
    with connect(store, [each.view for each in SUMMARY]) as connection:
        return summary_json(store, connection)


@public
def query(root: str | Address, sql: str, *, allow_external: bool = False, follow_links: bool = False) -> pl.DataFrame:
    """Run an SQL query over the views of a store.

    Args:
        root: the finished store, or a folder of nights.
        sql: a statement of DuckDB, such as ``from modes``.
        allow_external: let the query read and write other files and load extensions, too.
        follow_links: follow links below the folder of your own store; without it they are refused.

    Returns:
        The rows.

    Raises:
        StoreError: the store is missing or unfinished, or one of its files is missing or torn.
        ConfigError: the query cannot be run.
    """
    store = parse_address(root, follow_links=follow_links)
    with connect(store, [sql], external=allow_external) as connection:
        return pl.DataFrame(query_table(store, connection, sql))


@public
def report(
    root: str | Address,
    out: str | Path,
    *,
    environments: Sequence[str] = (),
    failures_only: bool = False,
    limit: int | None = None,
    draw_plans: bool = False,
    other: str | Address | None = None,
    reporter: Reporter | None = None,
    follow_links: bool = False,
    allow: Names = (),
) -> Contents:
    """Write a store as a site that opens from disk.

    Args:
        root: the finished store, or a folder of nights.
        out: folder of the site; an existing report is replaced.
        environments: environments to show; all by default.
        failures_only: leave out successes and episodes with an error.
        limit: maximum number of episodes per environment, the first ones.
        draw_plans: also render witness plans for environments with slow rendering.
        other: a second finished store, which the site shows next to the first one.
        reporter: receives the progress.
        follow_links: follow links below the folder of your own store; without it they are refused.
        allow: modules or models that the store names and that may be loaded; without them, pages lack what they
            compute.

    Returns:
        Contents of the site.

    Raises:
        StoreError: the store is missing or unfinished, or the folder cannot be written.
        ConfigError: an environment is not in the store.
    """
    del allow  # for the decorator
    selection = Selection(tuple(environments), failures_only, limit, draw_plans)
    second = None if other is None else parse_address(other, follow_links=follow_links)
    store = parse_address(root, follow_links=follow_links)
    return write_report(store, Path(out), selection, reporter or Silent(), second)
