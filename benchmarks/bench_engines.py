"""Gain of a second worker in a build on a cluster, as a share of what the machine allows.

A build with two workers is compared with one of one worker. The most that the machine allows is measured in the same
way: two processes that build one store each and share nothing, against one of them. Both are warm (imports, compiled
solvers) and alternate; the quickest build of each counts. The store is in memory, so that no disk is measured. Starts
of clusters are excluded, because they take the same seconds on both sides. The gains need two idle cores.
"""

import multiprocessing
import tempfile
from collections.abc import Iterator
from math import inf
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter

from pivot.benchmarks.harness import Row
from pivot.core.progress import Reporter
from pivot.datasets.store.config import RunConfig, make_config
from pivot.flows.engines.base import WorkerPool
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import build_store
from pivot.flows.running import pool_of
from pivot.tests.conftest import MEMORY

REQUIRED = 0.8
ROUNDS = 3
TASKS = 896
"""Enough tasks for twenty seconds with two workers, of which serial work (card, views, ends of stages) takes one."""
BROKEN_SECONDS = 300.0
"""Seconds that a process waits for the others before it assumes that they failed."""
SETTINGS = {"rows": 8, "cols": 8, "boxes": 2}


def rows() -> Iterator[Row]:
    """Yield the gains for Ray and Dask."""
    yield _row("Ray", "ray")
    yield _row("Dask", "dask")


def _row(title: str, engine: str) -> Row:
    seconds, apart = {1: inf, 2: inf}, {1: inf, 2: inf}
    for _ in range(ROUNDS):
        for workers, quickest in seconds.items():
            with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
                warm, full = Path(folder) / "warm", Path(folder) / "full"
                with pool_of({"engine": engine, "workers": workers}, ["sokoban"], warm) as pool:
                    _seconds(_config(8), warm, pool)
                    seconds[workers] = min(quickest, _seconds(_config(TASKS), full, pool))
            apart[workers] = min(apart[workers], _seconds_apart(workers))
    gain, most = seconds[1] / seconds[2], 2 * apart[1] / apart[2]
    return Row(
        name=f"{title}: gain of a second worker, against that of processes that share nothing",
        ours=gain,
        baseline=most,
        ratio=gain / most,
        required=REQUIRED,
        passed=gain / most >= REQUIRED,
        note=f"{8 * TASKS / seconds[2]:.0f} episodes per second with two; Sokoban 8x8 with two boxes, {TASKS // 4} "
        f"shards, best of {ROUNDS} builds",
    )


def _config(tasks: int) -> RunConfig:
    return make_config({"environments": {"sokoban": {"tasks": tasks, "settings": SETTINGS}}, "tasks_per_shard": 4})


def _seconds(config: RunConfig, root: Path, pool: WorkerPool) -> float:
    start = perf_counter()
    build_store(root, config, pool, Reporter())
    return perf_counter() - start


def _seconds_apart(processes: int) -> float:
    """Return the seconds in which several independent processes build one store each, without their starts."""
    spawn = multiprocessing.get_context("spawn")
    together, seconds = spawn.Barrier(processes), spawn.SimpleQueue()
    started = [spawn.Process(target=_build_apart, args=(together, seconds), daemon=True) for _ in range(processes)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        raise RuntimeError("a process that builds a store alone ended with the error above")
    return max(seconds.get() for _ in started)


def _build_apart(together: Barrier, seconds: SimpleQueue[float]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        _seconds(_config(8), Path(folder) / "warm", InProcess())
        together.wait(BROKEN_SECONDS)
        seconds.put(_seconds(_config(TASKS // 4), Path(folder) / "full", InProcess()))
