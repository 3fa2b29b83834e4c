"""What a second worker of a cluster is worth: a build that computes all the time, by one worker and by two of them.

The baseline is the same build on a cluster of one worker. Both sides are warm (imports, compiled solvers), by turns,
and the quickest build of each counts; the store lies in memory, so that no disk is measured, and starts are left out,
of clusters and of the flow engine, for they take the same seconds on both sides. On a machine with fewer than two idle
cores the ratio says nothing.
"""

import tempfile
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from pivot.datasets.config import RunConfig, make_config
from pivot.datasets.progress import Silent
from pivot.flows.engines.base import WorkerPool, Workers, open_pool
from pivot.flows.engines.local import execute_with
from pivot.flows.pipeline import build_store
from pivot.tests.conftest import MEMORY

REQUIRED = 1.7
ROUNDS = 3
TASKS = 384
"""A quarter of a minute with two workers: what they cannot share (card, views, the end of a stage) is half a second."""
SETTINGS = {"rows": 8, "cols": 8, "boxes": 2}


def rows() -> list[dict[str, Any]]:
    """Return the ratios for Ray and Dask; episodes a second on either side."""
    return [_row("Ray", "ray"), _row("Dask", "dask")]


def _row(title: str, engine: str) -> dict[str, Any]:
    took = {1: inf, 2: inf}
    for _ in range(ROUNDS):
        for workers, quickest in took.items():
            with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
                warm, full = Path(folder) / "warm", Path(folder) / "full"
                with open_pool(Workers(engine, count=workers), ["sokoban"], warm) as pool:
                    _seconds(_config(8), warm, pool)
                    took[workers] = min(quickest, _seconds(_config(TASKS), full, pool))
    episodes = 8 * TASKS
    ratio = took[1] / took[2]
    return {
        "name": f"{title}: two workers against one",
        "ours": episodes / took[2],
        "baseline": episodes / took[1],
        "ratio": ratio,
        "required": REQUIRED,
        "passed": ratio >= REQUIRED,
        "note": f"episodes a second; Sokoban 8x8 with two boxes, {TASKS // 4} shards, best of {ROUNDS} builds",
    }


def _config(tasks: int) -> RunConfig:
    return make_config({"environments": {"sokoban": {"tasks": tasks, "settings": SETTINGS}}, "tasks_per_shard": 4})


def _seconds(config: RunConfig, root: Path, pool: WorkerPool) -> float:
    start = perf_counter()
    build_store(root, config, execute_with(pool), Silent())
    return perf_counter() - start
