"""The pipeline as Prefect flows: one definition, run in process by ``pivot build`` or by a worker on a schedule."""

import atexit
import os
import subprocess
import sys
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.runtime import flow_run

from ..datasets.config import RunConfig, make_config
from ..datasets.progress import Reporter
from ..datasets.proof.verify import verify_store
from ..datasets.store import Store
from ..errors import StoreError
from ..identity import derive_seed
from ..storage import Address, parse_address
from .engines.local import WorkerPool, available_cores, worker_pool
from .engines.prefect import execute_as_tasks, flow_log, noted_run
from .pipeline import BuildResult, build_store

_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)
"""Set by a caller in the same process that shows progress; a scheduled run logs instead."""


_pool: ContextVar[WorkerPool | None] = ContextVar("pool", default=None)
"""Set by a caller in the same process whose workers get ready while Prefect starts, and who has met the models; a
scheduled run makes its own."""


def _end_quietly() -> None:
    """Let nobody write on the screen while the interpreter takes modules apart.

    Prefect's threads live to the end, and native libraries then complain of objects that are still in use. Registered
    before anything else of a flow's process, so that it is the last that runs at exit.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_end_quietly)


@flow(name="build-dataset", flow_run_name="build {out}", persist_result=False, validate_parameters=False)
def build_dataset(config: dict[str, Any], out: str, workers: int = 0, refresh: bool = False) -> dict[str, Any]:
    """Roll out, label and export one dataset.

    Args:
        config: a resolved run config, as in ``run.json``.
        out: folder of the store.
        workers: worker processes; 0 for one a core.
        refresh: make everything anew.
    """
    return _build(make_config(config), parse_address(out), workers or available_cores(), refresh)


def _build(config: RunConfig, out: Address, workers: int, refresh: bool) -> dict[str, Any]:
    shown, ready = _reporter.get(), _pool.get()
    with (
        nullcontext(shown) if shown else flow_log() as reporter,
        nullcontext(ready) if ready else worker_pool(workers, list(config.environments)) as pool,
    ):
        execute = execute_as_tasks(pool)
        result = build_store(out, config, execute, reporter, refresh=refresh, meet=ready is None, around=noted_run)
    create_table_artifact(
        key="pivot-build",
        table=[{"environment": name, **counts} for name, counts in result.environments.items()],
        description=f"Store at {result.root}",
    )
    return {
        "root": str(result.root),
        "already_complete": result.already_complete,
        "reused_shards": result.reused_shards,
        "shards": result.shards,
        "environments": result.environments,
    }


ON_FAILURE = "PIVOT_ON_FAILURE"
"""Environment variable of a worker: a program that is started when a nightly build has failed for good, with the run's
name and what went wrong."""
HALF_A_DAY = 12 * 3600.0
"""Seconds after which a nightly build counts as hanging."""


def tell_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """Start the operator's program for a run that failed or crashed."""
    del flow
    program = os.environ.get(ON_FAILURE)
    if program:
        subprocess.run([program, str(flow_run.name), str(state.message)], check=False, timeout=60)


@flow(
    name="nightly-build",
    flow_run_name="nightly {out}",
    persist_result=False,
    validate_parameters=False,
    retries=2,
    retry_delay_seconds=60,
    timeout_seconds=HALF_A_DAY,
    on_failure=[tell_failure],
    on_crashed=[tell_failure],
)
def nightly(out: str, config: dict[str, Any], workers: int = 0, verify: bool = True) -> dict[str, Any]:
    """Build one dataset a night: folder and seed come from the scheduled date, so a retry goes on with the same one.

    Args:
        out: parent folder; the store is ``OUT/YYYY-MM-DD``.
        config: a run config without seed.
        workers: worker processes; 0 for one a core.
        verify: prove the store again when it is finished.

    Raises:
        StoreError: verification found problems.
        PivotError: as :func:`.build_store`.
    """
    scheduled: datetime = flow_run.scheduled_start_time
    date = scheduled.date().isoformat()
    seeded = config | {"seed": derive_seed("nightly", date) % 2**32}
    root, processes = parse_address(out) / date, workers or available_cores()
    built = _build(make_config(seeded), root, processes, refresh=False)
    return built | {"verified": _verify(root, processes) if verify else None}


def _verify(root: Address, workers: int) -> dict[str, int]:
    with flow_log() as reporter, worker_pool(workers, list(Store.open(root).config.environments)) as pool:
        report = verify_store(root, reporter, pool.stream)
    if report.problems:
        raise StoreError(f"{len(report.problems)} problems found in {root}, the first: {report.problems[0]}")
    return report.checked


def run_in_process(
    config: RunConfig, out: Address, pool: WorkerPool, reporter: Reporter, *, refresh: bool = False
) -> BuildResult:
    """Run the flow here and now on ``pool``, showing progress through ``reporter``."""
    tokens = _reporter.set(reporter), _pool.set(pool)
    try:
        raw: dict[str, Any] = build_dataset(config.model_dump(mode="json"), str(out), pool.workers, refresh)
    finally:
        _reporter.reset(tokens[0])
        _pool.reset(tokens[1])
    raw["root"] = parse_address(raw["root"])
    return BuildResult(**raw)
