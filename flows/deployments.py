"""The pipeline as Prefect flows, for workers of deployments and for builds that a server records.

``prefect.yaml`` deploys them. Their parameters are the typed models of the rest of PIVOT, so Prefect's pages show forms
for them, and Prefect checks the values before a run begins.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
from pydantic import NonNegativeInt

from ..core.admission import allowing
from ..core.errors import ConfigError, EngineError, StoreError
from ..core.identity import derive_seed
from ..core.progress import Reporter
from ..core.storage import Address, Url, open_storage, parse_address
from ..datasets.store.config import RunConfig
from ..datasets.store.nights import write_nights_card
from ..datasets.store.store import MANIFEST
from ..datasets.verify.verify import verify_store
from ..insight.report.site import report as write_report
from ..labeling.statements import count
from .artifacts import file_address, show_store, usage_of
from .engines.base import WorkerPool
from .engines.prefect import TaskPool
from .metrics import FOLDER
from .pipeline import BuildResult, build_store
from .prune import check_retention, own, prune
from .running import Running, pool_of
from .watch import Watch, watched


def _end_quietly() -> None:
    """Close standard error at exit, so that native libraries print no warnings about objects in use.

    Prefect's threads live until the interpreter ends. Registered first in a flow's process, so it runs last at exit.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_end_quietly)


DATE = "{date}"
"""Placeholder in the folder of a build: the day that the run was scheduled for."""


def _dated(out: str, seed: int) -> tuple[Address, int]:
    """Return the folder and seed of a build; both depend on the scheduled day if the folder contains ``{date}``.

    A retry, or another run that is scheduled for the same day, resumes the same store.
    """
    if DATE not in out:
        return parse_address(out), seed
    night = _day().isoformat()
    return parse_address(out.replace(DATE, night)), (derive_seed("nightly", night) + seed) % 2**32


def _day() -> date:
    """Return the day that the current flow run was scheduled for."""
    scheduled: datetime = flow_run.scheduled_start_time
    return scheduled.date()


def _build_name() -> str:
    config: RunConfig = flow_run.parameters["config"]
    out = flow_run.parameters["out"]
    with suppress(ConfigError):  # the flow itself reports it: an error here would crash the run without its reason
        out = _dated(out, config.seed)[0]
    return f"build {'+'.join(config.environments)} in {out}"


@flow(name="build-dataset", flow_run_name=_build_name, persist_result=False)
def build_dataset(
    config: RunConfig,
    out: str,
    workers: NonNegativeInt = 0,
    refresh: bool = False,
    verify: bool = False,
    report: bool = False,
    engine: str = "local",
    address: str = "",
    keep: str = "",
    owner: str = "",
) -> dict[str, Any]:
    """Roll out, label and export one dataset.

    Args:
        config: The run config, as in `run.json`.
        out: Folder of the store, or an address such as `s3://bucket/folder`. `{date}` in it becomes the day that the
            run was scheduled for, and the seed is then derived from that day, too. If it ends with `/{date}`, the
            `README.md` of the folder above names the finished nights for `load_dataset`.
        workers: Worker processes; 0 for one per core.
        refresh: Remove the contents of the folder and build again; a retry resumes what the first attempt has begun.
        verify: Verify the store when it is finished.
        report: Write a site into the folder `OUT-report`; not in an object store.
        engine: Engine that runs the shards: `local`, `ray`, `dask`, or another that is installed.
        address: Cluster of the engine; empty for workers on the machine of this run.
        keep: Nights to keep in the folder above `{date}` once this one is complete: days such as `14d`, or a number of
            finished nights such as `30`. Older ones are marked, and removed with their reports a day later. Empty to
            keep all.
        owner: Name that no other deployment has, such as `nightly-3f9a1c07`. Nights carry it, and `keep` removes only
            nights that do.

    Raises:
        StoreError: verification found problems.
        ConfigError: a report is asked for in an object store.
        PivotError: as :func:`.build_store`.
    """
    root, seed = _dated(out, config.seed)
    if report and isinstance(root, Url):
        raise ConfigError(f"report: a site is a folder of this machine, and out is {out}; set report to false")
    if keep:
        check_retention(keep, owner, out, DATE)
    if owner:
        own(root, owner)
    config = config.model_copy(update={"seed": seed})
    if refresh and flow_run.run_count > 1:  # an earlier attempt may have failed before it removed a finished store
        refresh = open_storage(root).stat(MANIFEST) is not None
    # The operator allows the code that the parameters name.
    with (
        allowing(config.code),
        at_work(config, root, {"engine": engine, "address": address, "workers": workers}) as (watch, pool),
    ):
        result = _build(config, root, watch, pool, refresh=refresh)
        if report and isinstance(root, Path):
            site = root.with_name(f"{root.name}-report")
            write_report(root, site, reporter=watch)
            page = file_address(site / "index.html")
            watch.artifacts.link("report", page, page, f"Every episode of {root} as a page")
        verified = verify_store(root, watch, pool.stream) if verify else None
        if verified is not None and verified.problems:
            raise StoreError(
                f"{count(len(verified.problems), 'problem')} found in {root}, the first: {verified.problems[0]}"
            )
        if out.rstrip("/").endswith(f"/{DATE}") and not write_nights_card(root.parent):
            watch.log.warning("%s/README.md was not written by PIVOT and stays: it names no nights", root.parent)
        if keep and result.is_whole:  # days count back from the night that is complete
            pruned = prune(root.parent, keep=keep, owner=owner, reporter=watch, night=_day())
            for each in pruned.removals:
                did = "marked" if each.kind == "mark" else "removed"
                watch.log.info("%s %s %s: %d bytes", did, each.kind, each.address, each.bytes)
            for line in pruned.kept:
                watch.log.warning("kept: %s", line)
    return plain(result) | {"verified": None if verified is None else verified.checked}


@contextmanager
def at_work(
    config: RunConfig, store: Address, running: Running, beside: Reporter | None = None
) -> Iterator[tuple[Watch, WorkerPool]]:
    """Open the reports and the workers of a flow run on this config; ``beside`` gets every report, too."""
    environments = list(config.environments)
    with watched("-".join(environments), beside) as watch, pool_of(running, environments, store) as pool:
        watch.metrics.store = store
        yield watch, pool


def _build(config: RunConfig, root: Address, watch: Watch, pool: WorkerPool, *, refresh: bool) -> BuildResult:
    """Build a store as :func:`.build_store` does, with a task per shard, and artifacts."""
    result = build_store(root, config, TaskPool(pool), watch, refresh=refresh)
    show(watch, result)
    return result


def show(watch: Watch, result: BuildResult) -> None:
    """Show the counts of a store that a flow run made, and add them to the run's metrics."""
    watch.metrics.counts = result.environments
    if FOLDER in os.environ:
        with watch.artifacts.unharmed("usage"):
            watch.metrics.store_bytes = sum(open_storage(result.root).sizes().values())
            watch.metrics.usage = usage_of(result.root)
    show_store(watch.artifacts, result)


def plain(result: BuildResult) -> dict[str, Any]:
    """Return a result as JSON data, which Prefect stores."""
    return {
        "root": str(result.root),
        "already_complete": result.already_complete,
        "reused_shards": result.reused_shards,
        "shards": result.shards,
        "environments": result.environments,
    }


def recorded_build(
    config: RunConfig, root: Address, running: Running, reporter: Reporter, *, refresh: bool = False
) -> BuildResult:
    """Build as a flow run of this process, with progress to ``reporter`` and without retries.

    It is recorded on the configured server, or without one on Prefect's own temporary server.

    Raises:
        EngineError: Prefect's server refuses a request, mostly because it cannot write its database.
        PivotError: as :func:`.build_store`.
    """
    made: list[BuildResult] = []

    def title() -> str:  # a text would be a template
        return f"build {'+'.join(config.environments)} in {root}"

    @flow(name="build-dataset", flow_run_name=title, persist_result=False, retries=0)
    def run(config: RunConfig, out: str) -> dict[str, Any]:
        del out  # only the run's title uses it
        with at_work(config, root, running, reporter) as (watch, pool):
            made.append(_build(config, root, watch, pool, refresh=refresh))
        return plain(made[0])

    try:
        run(config, str(root))
    except PrefectHTTPStatusError as error:
        answer = f"{error.response.status_code} to {error.request.url.path}"
        raise EngineError(
            f"the Prefect server answers {answer}; see that its database can be written and has room, and run the same "
            "command again, or without it: --no-prefect"
        ) from error
    return made[0]
