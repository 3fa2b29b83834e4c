"""What a second worker of a cluster is worth: a build that computes all the time, by one worker and by two of them.

The baseline is the same build on a cluster of one worker. Both sides are warm (imports, compiled solvers), by turns,
and the quickest build of each counts; the store lies in memory, so that no disk is measured, and starts are left out,
of clusters and of the flow engine, for they take the same seconds on both sides. On a machine with fewer than two idle
cores the ratio says nothing. How much it can say the note tells: what the machine itself gives, by two processes that
build a store each and share nothing, against one of them.
"""

import multiprocessing
import tempfile
from math import inf
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter
from typing import Any

from pivot.datasets.config import RunConfig, make_config
from pivot.datasets.progress import Silent
from pivot.flows.engines.base import WorkerPool, Workers, open_pool
from pivot.flows.engines.local import InProcess, execute_with
from pivot.flows.pipeline import build_store
from pivot.tests.conftest import MEMORY

REQUIRED = 1.7
ROUNDS = 4
TASKS = 384
"""A third of a minute with two workers: what they cannot share (card, views, the end of a stage) is a second of it."""
BROKEN_SECONDS = 300.0
"""How long a process waits for the others, which may have ended with an error."""
SETTINGS = {"rows": 8, "cols": 8, "boxes": 2}


def rows() -> list[dict[str, Any]]:
    """Return the ratios for Ray and Dask; episodes a second on either side."""
    return [_row("Ray", "ray"), _row("Dask", "dask")]


def _row(title: str, engine: str) -> dict[str, Any]:
    took, apart = {1: inf, 2: inf}, {1: inf, 2: inf}
    for _ in range(ROUNDS):
        for workers, quickest in took.items():
            with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
                warm, full = Path(folder) / "warm", Path(folder) / "full"
                with open_pool(Workers(engine, count=workers), ["sokoban"], warm) as pool:
                    _seconds(_config(8), warm, pool)
                    took[workers] = min(quickest, _seconds(_config(TASKS), full, pool))
            apart[workers] = min(apart[workers], _seconds_apart(workers))
    episodes = 8 * TASKS
    ratio = took[1] / took[2]
    return {
        "name": f"{title}: two workers against one",
        "ours": episodes / took[2],
        "baseline": episodes / took[1],
        "ratio": ratio,
        "required": REQUIRED,
        "passed": ratio >= REQUIRED,
        "note": f"episodes a second; Sokoban 8x8 with two boxes, {TASKS // 4} shards, best of {ROUNDS} builds; "
        f"two processes that share nothing do {2 * apart[1] / apart[2]:.2f}x one here",
    }


def _config(tasks: int) -> RunConfig:
    return make_config({"environments": {"sokoban": {"tasks": tasks, "settings": SETTINGS}}, "tasks_per_shard": 4})


def _seconds(config: RunConfig, root: Path, pool: WorkerPool) -> float:
    start = perf_counter()
    build_store(root, config, execute_with(pool), Silent())
    return perf_counter() - start


def _seconds_apart(processes: int) -> float:
    """Seconds until each of some processes that share nothing has built a store of its own; starts are left out."""
    spawn = multiprocessing.get_context("spawn")
    together, seconds = spawn.Barrier(processes), spawn.SimpleQueue()
    started = [spawn.Process(target=_build_apart, args=(together, seconds), daemon=True) for _ in range(processes)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        raise RuntimeError("a process that was to build a store alone has ended with an error; it is told above")
    return max(seconds.get() for _ in started)


def _build_apart(together: Barrier, seconds: SimpleQueue[float]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        _seconds(_config(8), Path(folder) / "warm", InProcess())
        together.wait(BROKEN_SECONDS)
        seconds.put(_seconds(_config(TASKS // 4), Path(folder) / "full", InProcess()))
