"""The pipeline as Prefect flows: one definition, run in process by ``pivot build`` or by a worker on a schedule."""

from contextlib import nullcontext
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.runtime import flow_run

from ..datasets.config import RunConfig, make_config
from ..datasets.progress import Reporter
from ..identity import derive_seed
from .engines.local import WorkerPool, available_cores, worker_pool
from .engines.prefect import execute_as_tasks, flow_log
from .pipeline import BuildResult, build_store

_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)
"""Set by a caller in the same process that shows progress; a scheduled run logs instead."""


_pool: ContextVar[WorkerPool | None] = ContextVar("pool", default=None)
"""Set by a caller in the same process whose workers get ready while Prefect starts; a scheduled run makes its own."""


@flow(name="build-dataset", persist_result=False, validate_parameters=False)
def build_dataset(config: dict[str, Any], out: str, workers: int = 0, refresh: bool = False) -> dict[str, Any]:
    """Roll out, label and export one dataset.

    Args:
        config: a resolved run config, as in ``run.json``.
        out: folder of the store.
        workers: worker processes; 0 for one a core.
        refresh: make everything anew.
    """
    return _build(make_config(config), Path(out), workers or available_cores(), refresh)


def _build(config: RunConfig, out: Path, workers: int, refresh: bool) -> dict[str, Any]:
    shown, ready = _reporter.get(), _pool.get()
    with (
        nullcontext(shown) if shown else flow_log() as reporter,
        nullcontext(ready) if ready else worker_pool(workers, list(config.environments)) as pool,
    ):
        result = build_store(out, config, execute_as_tasks(pool), reporter, refresh=refresh)
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


@flow(name="nightly-build", persist_result=False, validate_parameters=False)
def nightly(out: str, config: dict[str, Any], workers: int = 0) -> dict[str, Any]:
    """Build one dataset a night: folder and seed come from the scheduled date, so a retry goes on with the same one.

    Args:
        out: parent folder; the store is ``OUT/YYYY-MM-DD``.
        config: a run config without seed.
        workers: worker processes; 0 for one a core.
    """
    scheduled: datetime = flow_run.scheduled_start_time
    date = scheduled.date().isoformat()
    seeded = config | {"seed": derive_seed("nightly", date) % 2**32}
    return _build(make_config(seeded), Path(out) / date, workers or available_cores(), refresh=False)


def run_in_process(
    config: RunConfig, out: Path, pool: WorkerPool, reporter: Reporter, *, refresh: bool = False
) -> BuildResult:
    """Run the flow here and now on ``pool``, showing progress through ``reporter``."""
    tokens = _reporter.set(reporter), _pool.set(pool)
    try:
        raw: dict[str, Any] = build_dataset(config.model_dump(mode="json"), str(out), pool.workers, refresh)
    finally:
        _reporter.reset(tokens[0])
        _pool.reset(tokens[1])
    raw["root"] = Path(raw["root"])
    return BuildResult(**raw)
