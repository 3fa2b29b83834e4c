"""The pipeline as a Prefect flow: one definition, run in process by ``pivot build`` or by a worker on a schedule.

A Prefect task is one stage of one shard (seconds to hours of work, never one episode). The work itself happens in a
process pool of the run, because task runners that start a process for each task cost more than a shard of puzzles.
Caching is left to the store's receipts: they also notice when an output file is gone.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import as_completed
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner

from ..datasets.config import RunConfig, make_config
from ..datasets.progress import Reporter
from ..identity import derive_seed
from .execution import Call, Execute, WorkerPool, available_cores, finished, worker_pool
from .pipeline import BuildResult, build_store
from .stages import ShardResult

_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)
"""Set by a caller in the same process that shows progress; a scheduled run logs instead."""

_pool: ContextVar[WorkerPool | None] = ContextVar("pool", default=None)
"""Set by a caller in the same process whose workers get ready while Prefect starts; a scheduled run makes its own."""


class FlowLog:
    """Reports to the flow run's log."""

    def __init__(self) -> None:
        self._log = get_run_logger()

    def start(self, stage: str, total: int) -> None:
        """Log that a stage begins."""
        self._log.info("%s: %d episodes", stage, total)

    def advance(self, stage: str, amount: int) -> None:
        """Say nothing: Prefect shows the finished tasks."""

    def finish(self, stage: str) -> None:
        """Log that a stage is over."""
        self._log.info("%s: done", stage)


@task(name="shard", task_run_name="{stage} {shard}", cache_policy=NO_CACHE, persist_result=False)
def run_shard(stage: str, shard: str, pool: WorkerPool, call: Call, arguments: tuple[Any, ...]) -> ShardResult:
    """Run one stage of one shard on the run's process pool."""
    del stage, shard  # they name the task run
    return finished(pool.submit(call, *arguments))


def _execute_as_tasks(pool: WorkerPool) -> Execute:
    def execute(stage: str, call: Call, arguments: Sequence[tuple[Any, ...]]) -> Iterator[ShardResult]:
        # arguments[2] of every stage is the shard
        futures = [run_shard.submit(stage, each[2].stem, pool, call, each) for each in arguments]
        try:
            for future in as_completed(futures):
                yield future.result()
        except KeyboardInterrupt:
            pool.stop()  # before Prefect waits for the calls in work
            raise

    return execute


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
    reporter = _reporter.get() or FlowLog()
    ready = _pool.get()
    with nullcontext(ready) if ready else worker_pool(workers, list(config.environments)) as pool:
        result = build_store(out, config, _execute_as_tasks(pool), reporter, refresh=refresh)
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
        runner = ThreadPoolTaskRunner(max_workers=pool.workers)
        run = build_dataset.with_options(task_runner=runner)  # pyright: ignore[reportArgumentType] - invariant generic
        raw: dict[str, Any] = run(config.model_dump(mode="json"), str(out), pool.workers, refresh)
    finally:
        _reporter.reset(tokens[0])
        _pool.reset(tokens[1])
    raw["root"] = Path(raw["root"])
    return BuildResult(**raw)
