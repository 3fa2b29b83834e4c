"""Export of image rows: our Parquet writer against ``Dataset.from_generator`` and ``to_parquet``, same encoded bytes.

2,000 rows of 30 KB go to disk on both sides; ours flushes every file and its folder (``fsync``), the baseline does not.
Each side starts with a settled disk: otherwise our flushes would also wait for what the baseline left unflushed, and
for the deletion of its files. The sides alternate, and the quickest round of each counts, because the machine is noisy.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from pivot.benchmarks.harness import Row
from pivot.core.storage import LocalStorage
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import DATASET
from pivot.solvers.base import FAILURE_MODES

ROWS, ROW_BYTES, SHARD_ROWS, ROUNDS = 2_000, 30_000, 128, 5
REQUIRED = 3.0


def rows() -> Iterator[Row]:
    """Return the measured ratio; seconds for all rows."""
    records = [_record(index) for index in range(ROWS)]
    ours, baseline = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            baseline.append(_timed(_write_baseline, records, Path(folder)))
        with tempfile.TemporaryDirectory() as folder:
            ours.append(_timed(_write_ours, records, Path(folder)))
    ratio = min(baseline) / min(ours)
    yield Row(
        name=f"export of {ROWS} rows of {ROW_BYTES // 1000} KB",
        ours=min(ours),
        baseline=min(baseline),
        ratio=ratio,
        required=REQUIRED,
        passed=ratio >= REQUIRED,
        note=f"seconds, best of {ROUNDS}; from_generator + to_parquet against {-(-ROWS // SHARD_ROWS)} flushed files",
    )


def _record(index: int) -> dict[str, Any]:
    """One row of the dataset table with two pictures of incompressible bytes."""
    picture, panel = os.urandom(ROW_BYTES * 2 // 3), os.urandom(ROW_BYTES // 3)
    actions = ["up", "down", "left", "right", "invalid", "up", "down", "left", "right"]
    text = "\n".join(f"step {t}: action={action} moved=true" for t, action in enumerate(actions))
    record: dict[str, Any] = {column.name: None for column in DATASET.columns}
    return record | {
        "episode_id": f"episode-{index:08d}",
        "env": "sokoban",
        "task_id": f"sokoban-{index // 8}",
        "goal_idx": 0,
        "eval_set": "default",
        "images": [{"bytes": picture, "path": None}],
        "panel": {"bytes": panel, "path": None},
        "prompt": [{"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": text * 8}]}],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": text[:200]}]}],
        "pivot_step": index % 9,
        "failure_mode": FAILURE_MODES[index % 2],
        "failure_mode_id": index % 2,
        "failure_reason": text[:120],
        "actions": actions,
        "action_log": text,
        "initial_state": "######\n#@$ .#\n######",
        "horizon": 9,
        "num_steps": 9,
        "episode_return": -0.9,
        "witness": ["right", "right"],
        "infeasible_at_start": False,
        "policy": "scripted",
        "teacher": "template",
        "solver": "sokoban 1",
        "prompt_hash": f"{index:032x}",
    }


def _timed(write: Any, records: list[dict[str, Any]], folder: Path) -> float:
    os.sync()
    start = perf_counter()
    write(records, folder)
    return perf_counter() - start


def _write_ours(records: list[dict[str, Any]], folder: Path) -> None:
    starts = range(0, len(records), SHARD_ROWS)
    tables = (DATASET.table(records[first : first + SHARD_ROWS], features=True) for first in starts)
    write_tables(
        LocalStorage(folder), ((f"train-{number:05d}.parquet", DATASET, table) for number, table in enumerate(tables))
    )


def _write_baseline(records: list[dict[str, Any]], folder: Path) -> None:
    from datasets import Dataset, Features, disable_progress_bars  # noqa: PLC0415 - slow to import

    disable_progress_bars()

    def generate() -> Iterator[dict[str, Any]]:
        yield from records

    features = Features.from_arrow_schema(DATASET.arrow_with_features())
    dataset = Dataset.from_generator(
        generate, features=features, cache_dir=str(folder / "cache"), fingerprint=folder.name
    )
    dataset.to_parquet(str(folder / "train.parquet"))  # pyright: ignore[reportAttributeAccessIssue]
