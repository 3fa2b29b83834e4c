"""Statistics of a store of a million episodes: our views against pandas over the same Parquet files.

The store repeats the rows of a small build in random order under new ids, some as errors, some rejected, in shards of
the default size: the files are as many, as wide and as compressible as real ones, and nothing is rendered. Steps,
prompts, frames and calls, which no summary reads, are one file under many names. Every side runs in a separate process.
"Reading" precedes the first query: we open the store, pandas reads the six columns that it needs.
"""

import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pivot
import pyarrow as pa
from pivot.benchmarks.harness import Row, output_of
from pivot.core.storage import FileRecord
from pivot.datasets.store.config import Shard, make_config
from pivot.datasets.store.parquet import write_parquet
from pivot.datasets.store.schema import EPISODES, LABELS, STORE_TABLES, TableSchema
from pivot.datasets.store.store import RUN, Store
from pivot.rollouts.base import GROUP_SIZE

MILLION = 1_000_000
ENVIRONMENTS = ("sokoban", "frozenlake", "primitiveskill", "svg")
SECONDS_REQUIRED, RATIO_REQUIRED, MEGABYTES_REQUIRED = 1.0, 5.0, 1000
ERRORS, REJECTED = 0.02, 0.05
REASON = [{"name": "guidance", "kind": "too_long", "detail": "planted"}]


def rows() -> Iterator[Row]:
    """Yield the rows: the group-by, the same with reading, and the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: {"tasks": 16, "settings": {}} for name in ENVIRONMENTS}
        pivot.build({"environments": runs}, Path(folder) / "small")
        root = make_store(Path(folder) / "store", Store.open(Path(folder) / "small"), MILLION).storage.local_path()
        ours, pandas = (_measured(code, root) for code in (_OURS, _PANDAS))
        if ours["result"] != pandas["result"]:
            raise AssertionError(f"views say {ours['result']}, pandas says {pandas['result']}")
        command = _measured(_COMMAND, root)
    reading = pandas["reading"] + pandas["query"], ours["reading"] + ours["query"]
    note = f"at most {SECONDS_REQUIRED:.0f} s; 1 M episodes in default shards; peak {ours['peak']:.0f} MB against "
    yield Row(
        name="pivot stats, group-by over modes, store open",
        ours=ours["query"],
        baseline=pandas["query"],
        ratio=pandas["query"] / ours["query"],
        required=RATIO_REQUIRED,
        passed=ours["query"] <= SECONDS_REQUIRED
        and pandas["query"] >= RATIO_REQUIRED * ours["query"]
        and ours["peak"] <= MEGABYTES_REQUIRED,
        note=f"{note}{pandas['peak']:.0f} MB; pandas: merge and group-by",
    )
    yield Row(
        name="the same with reading",
        ours=reading[1],
        baseline=reading[0],
        ratio=reading[0] / reading[1],
        passed=True,
        note="seconds, opening the store or read_parquet included",
    )
    yield Row(
        name="the whole pivot stats, megabytes",
        ours=command["peak"],
        baseline=pandas["peak"],
        ratio=pandas["peak"] / command["peak"],
        required=MEGABYTES_REQUIRED,
        passed=command["peak"] <= MEGABYTES_REQUIRED,
        note=f"peak memory, at most; all ten summaries from start to exit in {command['seconds']:.1f} s",
    )


_OURS = """
import json, sys
from pathlib import Path
from statistics import median
from time import perf_counter
from pivot.datasets.sql.views import connect, run_query
root, start = Path(sys.argv[1]), perf_counter()
with connect(root, ["modes"]) as connection:
    reading, seconds = perf_counter() - start, []
    for _ in range(5):
        start = perf_counter()
        rows = run_query(root, connection, "SELECT env, failure_mode, failures, mean_pivot, mean_steps FROM modes")[1]
        seconds.append(perf_counter() - start)
result = sorted([*row[:3], round(row[3], 6), round(row[4], 6)] for row in rows)
print(json.dumps({"reading": reading, "query": median(seconds), "result": result}))
"""
_PANDAS = """
import json, sys
from pathlib import Path
from statistics import median
from time import perf_counter
import pandas
root, start = Path(sys.argv[1]), perf_counter()
files = [sorted(map(str, (root / table).glob("*/*.parquet"))) for table in ("episodes", "labels/v1")]
episodes = pandas.read_parquet(files[0], columns=["episode_id", "env", "num_steps"])
labels = pandas.read_parquet(files[1], columns=["episode_id", "failure_mode", "pivot_step"])
reading, seconds = perf_counter() - start, []
for _ in range(5):
    start = perf_counter()
    groups = labels.merge(episodes, on="episode_id").groupby(["env", "failure_mode"])
    modes = groups.agg(
        failures=("episode_id", "size"), mean_pivot=("pivot_step", "mean"), mean_steps=("num_steps", "mean")
    )
    seconds.append(perf_counter() - start)
result = sorted([*row[:3], round(row[3], 6), round(row[4], 6)] for row in modes.reset_index().values.tolist())
print(json.dumps({"reading": reading, "query": median(seconds), "result": result}))
"""


_COMMAND = """
import json, subprocess, sys
subprocess.run([sys.executable, "-m", "pivot", "stats", sys.argv[1]], check=True)
print(json.dumps({}))
"""
_LAUNCHER = """
import resource, subprocess, sys
status = subprocess.run([sys.executable, "-c", *sys.argv[1:]]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""
"""A small process in between, because the peak of a child includes the memory of its parent at the start."""


def _measured(code: str, root: Path) -> dict[str, Any]:
    """Run Python code; return the JSON on its last line, with its seconds and peak megabytes."""
    start = perf_counter()
    *_, printed, peak = output_of([sys.executable, "-c", _LAUNCHER, code, str(root)]).splitlines()
    return json.loads(printed) | {"seconds": perf_counter() - start, "peak": int(peak) / 1024}


class Template:
    """Rows of one environment in a small build, to sample from."""

    def __init__(self, store: Store, env: str) -> None:
        """Read the shards of an environment."""
        shards = [shard for shard in store.config.shards() if shard.env == env]
        self.shard = shards[0]
        self._episodes, self._labels = (
            pa.concat_tables([store.read(schema, shard) for shard in shards]) for schema in (EPISODES, LABELS)
        )
        indices = {name: index for index, name in enumerate(self._labels["episode_id"].to_pylist())}
        self._label_of = np.array([indices.get(name, -1) for name in self._episodes["episode_id"].to_pylist()])

    def sampled(self, shard: Shard, rng: np.random.Generator) -> Iterator[tuple[TableSchema, pa.Table]]:
        """Yield the episodes and labels of one shard of the big store."""
        size = (shard.stop - shard.first) * GROUP_SIZE
        chosen = rng.integers(0, len(self._label_of), size)
        tasks = np.repeat(np.arange(shard.first, shard.stop), GROUP_SIZE)
        ids = np.array([f"episode-v1-{shard.env}-{shard.number:012d}-{place:012d}" for place in range(size)])
        levels = np.array([f"{shard.env}-1-{task:024d}" for task in tasks])
        broke = rng.random(size) < ERRORS
        episodes = self._episodes.take(chosen)
        columns: dict[str, Any] = {
            "episode_id": ids,
            "task_id": levels,
            "group_id": levels,
            "sample_idx": np.tile(np.arange(GROUP_SIZE), size // GROUP_SIZE),
            "status": np.where(broke, "error", "complete"),
            "stop_reason": np.where(broke, "policy_error", episodes["stop_reason"].to_numpy()),
        }
        columns |= {name: pa.array(episodes[name].to_numpy(), mask=broke) for name in ("success", "failed")}
        yield EPISODES, _with(episodes, columns)
        kept = (self._label_of[chosen] >= 0) & ~broke
        rejected = rng.random(int(kept.sum())) < REJECTED
        columns = {
            "episode_id": ids[kept],
            "accepted": ~rejected,
            "reject_reasons": [REASON if each else [] for each in rejected],
        }
        yield LABELS, _with(self._labels.take(self._label_of[chosen][kept]), columns)


def _with(table: pa.Table, columns: dict[str, Any]) -> pa.Table:
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        column = table.schema.field(place)
        table = table.set_column(place, column, pa.array(values, column.type))
    return table


def make_store(root: Path, small: Store, episodes: int, tasks_per_shard: int = 16, seed: int = 0) -> Store:
    """Write a store of about ``episodes`` rollouts, sampled from a small store, at ``root``."""
    envs = list(small.config.environments)
    runs = {name: {"tasks": episodes // GROUP_SIZE // len(envs), "settings": {}} for name in envs}
    store = Store(root, make_config({"environments": runs, "tasks_per_shard": tasks_per_shard}))
    templates = {name: Template(small, name) for name in envs}
    rng = np.random.default_rng(seed)
    root.mkdir()
    files = {RUN: store.write_run()}
    for shard in store.config.shards():
        template = templates[shard.env]
        for schema, table in template.sampled(shard, rng):
            sink = io.BytesIO()
            write_parquet(schema, table, sink)
            files[store.table_file(schema, shard)] = _written(root / store.table_file(schema, shard), sink.getvalue())
        for schema in STORE_TABLES:
            if schema is not EPISODES:
                _link(small, template.shard, store, shard, small.table_file(schema, template.shard), files)
        _link(small, template.shard, store, shard, small.label_prompts_file(template.shard), files)
    store.write_manifest(files)
    return store


def _written(path: Path, content: bytes) -> FileRecord:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return FileRecord(hashlib.sha256(content).hexdigest(), len(content))


def _link(small: Store, source: Shard, store: Store, shard: Shard, name: str, files: dict[str, FileRecord]) -> None:
    """Give the file of a shard of the small store a further name in the big one; file systems allow a few thousand."""
    target, root = name.replace(source.stem, shard.stem), store.storage.local_path()
    first = root / name.replace(source.stem, f"{shard.env}/{shard.number // 1000 * 1000:05d}")
    if first == root / target:
        files[target] = _written(first, small.storage.read_bytes(name))
        return
    os.link(first, root / target)
    files[target] = files[first.relative_to(root).as_posix()]
