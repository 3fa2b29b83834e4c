"""Speed of the label stage of 6x6 one-box episodes on one core, against the least that such a stage has to do.

The stage does everything: Analyzer prompts, guidance, targets, the second proof, and the filters, of which one replays
every episode and hashes every distinct frame. The baseline does three things alone: it reads episode rows and certifies
them, hashes the same frames, and writes label rows durably. Both take one shard after the other, in this process.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from pivot import build
from pivot.benchmarks.harness import Row
from pivot.core.identity import canonical_json
from pivot.core.images import Frame, decode, frame_id
from pivot.datasets.store.config import RunConfig, Shard, make_config
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import EPISODES, FRAMES, LABELS, STEPS
from pivot.datasets.store.stages import LabelStage, run_stage
from pivot.datasets.store.store import Store
from pivot.solvers.base import Case, Verdict
from pivot.solvers.sokoban.solver import SokobanSolver

TASKS, ROUNDS = 256, 5
REQUIRED = 0.3


def rows() -> Iterator[Row]:
    """Yield the speed of the stage beside that of its baseline, in episodes per second of one core."""
    allowed = os.sched_getaffinity(0)
    config = make_config({"environments": {"sokoban": {"tasks": TASKS, "settings": {}}}, "tasks_per_shard": 64})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        result = build(config, root)
        failures = result.environments["sokoban"]["failed"]
        frames = _frames(Store(root, config))
        os.sched_setaffinity(0, {min(allowed)})
        try:
            times = [(_labeller(root, config), _hashing(frames), _whole_stage(root, config)) for _ in range(ROUNDS)]
        finally:
            os.sched_setaffinity(0, allowed)
    labeller, hashing, stage = (failures / median(column) for column in zip(*times, strict=True))
    floor = 1 / (1 / labeller + 1 / hashing)
    yield Row(
        name="whole label stage",
        ours=stage,
        baseline=floor,
        ratio=stage / floor,
        required=REQUIRED,
        passed=stage / floor >= REQUIRED,
        note=f"episodes per second of one core; {failures} failures; rows alone {labeller:,.0f}, hashes {hashing:,.0f}",
    )


def _frames(store: Store) -> list[Frame]:
    """Return the frames of the failures, each once per shard, as the replay of a shard hashes them."""
    frames: list[Frame] = []
    for shard in store.config.shards():
        failed = {row["episode_id"] for row in store.read(LABELS, shard, ["episode_id"]).to_pylist()}
        steps = store.read(STEPS, shard, ["episode_id", "frame_id", "next_frame_id"]).to_pylist()
        shown = {step[end] for step in steps if step["episode_id"] in failed for end in ("frame_id", "next_frame_id")}
        stored = store.read(FRAMES, shard, ["frame_id", "image"]).to_pylist()
        frames += [decode(row["image"]) for row in stored if row["frame_id"] in shown]
    return frames


def _hashing(frames: Sequence[Frame]) -> float:
    start = perf_counter()
    for frame in frames:
        frame_id(frame)
    return perf_counter() - start


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
