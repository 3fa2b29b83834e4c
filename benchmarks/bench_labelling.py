"""Labelling throughput of 6x6 one-box episodes on one core: stored rows are read and label rows written.

The first row is the labeller itself: read episode rows, certify, write label rows durably. The second is everything
that the label stage of a build does besides: Analyzer prompts, guidance, targets, the second proof, and the filters, of
which one replays every episode and hashes every distinct frame. Both label one shard after the other, in this process.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from pivot import build
from pivot.benchmarks.harness import Row
from pivot.core.identity import canonical_json
from pivot.datasets.store.config import RunConfig, Shard, make_config
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import EPISODES, LABELS
from pivot.datasets.store.stages import LabelStage, run_stage
from pivot.datasets.store.store import Store
from pivot.solvers.base import Case, Verdict
from pivot.solvers.sokoban.solver import SokobanSolver

TASKS, ROUNDS = 256, 5
REQUIRED, STAGE_REQUIRED = 5_000, 2_500
"""Episodes per second of one core."""


def rows() -> Iterator[Row]:
    """Yield the speeds of the labeller alone and of the whole stage."""
    allowed = os.sched_getaffinity(0)
    config = make_config({"environments": {"sokoban": {"tasks": TASKS, "settings": {}}}, "tasks_per_shard": 64})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        result = build(config, root)
        failures = result.environments["sokoban"]["failed"]
        os.sched_setaffinity(0, {min(allowed)})
        try:
            labeller = failures / median(_labeller(root, config) for _ in range(ROUNDS))
            stage = failures / median(_whole_stage(root, config) for _ in range(ROUNDS))
        finally:
            os.sched_setaffinity(0, allowed)
    yield _row("labels, rows read and written", labeller, REQUIRED, f"{failures} failed 6x6 episodes")
    yield _row("whole label stage", stage, STAGE_REQUIRED, "with prompts, guidance, proof, filters, replay, hashes")


def _row(name: str, speed: float, required: int, note: str) -> Row:
    return Row(
        name=name,
        ours=speed,
        required=required,
        passed=speed >= required,
        note=f"episodes per second of one core; {note}",
    )


def _labeller(root: Path, config: RunConfig) -> float:
    store, solver = Store(root, config), SokobanSolver()
    start = perf_counter()
    for shard in config.shards():
        _label_rows(store, solver, shard)
    return perf_counter() - start


def _label_rows(store: Store, solver: SokobanSolver, shard: Shard) -> None:
    columns = ["episode_id", "initial_state", "actions", "horizon", "failed"]
    failures = [row for row in store.read(EPISODES, shard, columns).to_pylist() if row["failed"]]
    cases = [Case(row["initial_state"], row["actions"], row["horizon"]) for row in failures]
    settings = canonical_json(solver.config)
    empty: dict[str, Any] = dict.fromkeys(LABELS.names)
    labels = [
        empty
        | asdict(verdict)
        | {"episode_id": row["episode_id"], "solver": solver.name, "solver_config": settings, "accepted": True}
        for row, verdict in zip(failures, solver.certify(cases), strict=True)
        if isinstance(verdict, Verdict)
    ]
    write_tables(store.storage, [(f"bench/{shard.file}", LABELS, LABELS.table(labels))])


def _whole_stage(root: Path, config: RunConfig) -> float:
    for receipt in root.glob(".receipts/label-*/*/*.json"):
        receipt.unlink()
    start = perf_counter()
    store = Store(root, config)
    for shard in config.shards():
        run_stage(LabelStage(store, shard))
    return perf_counter() - start
