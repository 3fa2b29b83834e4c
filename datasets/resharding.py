"""Rows of stores for shards of another size, or of merged parts, without making any of them again.

A shard holds whole tasks in the order of the plan, so one of another size is a range of rows of the old ones that cover
it, and what these hold once a shard (pictures, prompts) once more, in order of first use. What is read is held against
the manifest first: a file that changed since then would get a new digest, under which nobody finds the change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from ..environments.base import Task
from ..errors import StoreError
from ..storage import FileRecord
from .config import Shard
from .inputs import ROLLOUT, label_inputs, label_stage, rollout_inputs
from .parquet import read_table
from .schema import CALLS, EPISODES, FRAMES, LABELS, PROMPTS, STEPS, STORE_TABLES, TableSchema
from .store import MANIFEST, Store

Tables = dict[TableSchema, pa.Table]


@dataclass(frozen=True)
class StoredShard:
    """A range of the levels of a stored shard; small, so that it can travel to a worker unread."""

    store: Store
    """The finished store."""
    shard: Shard
    """The stored shard."""
    levels: range
    """Its levels that are taken, counted from the first of the shard."""
    files: Mapping[str, FileRecord]
    """Entries of its files in the manifest."""

    @property
    def episodes(self) -> tuple[int, int]:
        """Index of the first episode that is taken, and the number of episodes."""
        return self.levels.start * self.store.config.rollouts, len(self.levels) * self.store.config.rollouts

    def read(self, schema: TableSchema, columns: list[str] | None = None) -> pa.Table:
        """Read a table of the shard, of all its levels."""
        name = self.store.table_file(schema, self.shard)
        return self.read_file(name, schema, columns, sparse=schema is LABELS)

    def read_file(
        self, name: str, schema: TableSchema, columns: list[str] | None = None, *, sparse: bool = True
    ) -> pa.Table:
        """Read a file that is as the manifest says; one of labels is only there where there are rows."""
        storage = self.store.storage
        if name not in self.files:
            if not sparse:
                raise StoreError(f"{storage.address(MANIFEST)} does not list {name}; restore it from a copy")
            return schema.arrow.empty_table()
        if storage.record(name) != self.files[name]:
            raise StoreError(
                f"{storage.address(name)} is not the file that {MANIFEST} lists; restore it from a copy "
                f"(pivot verify {self.store.root} names all that is damaged)"
            )
        return read_table(storage, name, schema, columns)

    def tasks_of(self, episodes: pa.Table) -> list[Task]:
        """Return the levels of some of its episodes."""
        rows = episodes.select([each.name for each in fields(Task)]).to_pylist()
        return [Task(**row) for row in rows[:: self.store.config.rollouts]]

    def named(self, rows: pa.Table, key: str, names: Sequence[str]) -> pa.Table:
        """Return the rows with these keys, in their order."""
        places = {name: place for place, name in enumerate(rows[key].to_pylist())}
        if lost := [name for name in names if name not in places]:
            raise self.apart(f"no row of {key} {lost[0]}")
        return rows.take(pa.array([places[name] for name in names], pa.int64()))

    def refuse_stale(self, stage: str, inputs: str) -> None:
        """Refuse a shard that the next build would make again: its copy would pass for one of this version."""
        receipt = self.store.receipt(stage, self.shard)
        if receipt is not None and receipt.inputs != inputs:
            raise StoreError(
                f"{self.store.storage.address(self.store.receipt_file(stage, self.shard))} is of another version of "
                f"PIVOT or of a plugin than those installed; build {self.store.root} again with --refresh"
            )

    def apart(self, what: str) -> StoreError:
        """Return the error about rows that contradict each other."""
        return StoreError(
            f"{self.store.root}: the rows of shard {self.shard.stem} do not belong together ({what}); "
            f"pivot verify {self.store.root} names all that is wrong"
        )


Source = tuple[Store, Mapping[str, FileRecord]]
"""A finished store with its manifest."""


@dataclass(frozen=True)
class ShardRows:
    """Rows of finished stores for one shard of a new store, which holds the levels of one after the other."""

    covering: Sequence[StoredShard]
    """The stored shards that hold its levels, in order."""

    @classmethod
    def of(cls, sources: Sequence[Source], shard: Shard) -> "ShardRows":
        """Return the rows of ``shard``."""
        covering: list[StoredShard] = []
        begin = 0
        for store, manifest in sources:
            run = store.config.environments.get(shard.env)
            if run is None:
                continue
            size = store.config.shard_size(shard.env)
            first, stop = max(shard.first - begin, 0), min(shard.stop - begin, run.tasks)
            for number in range(first // size, -(-stop // size)) if first < stop else ():
                old = Shard(shard.env, number, number * size, min((number + 1) * size, run.tasks))
                names = [*(store.table_file(schema, old) for schema in STORE_TABLES), *store.label_files(old)]
                files = {name: manifest[name] for name in names if name in manifest}
                levels = range(max(first, old.first) - old.first, min(stop, old.stop) - old.first)
                covering.append(StoredShard(store, old, levels, files))
            begin += run.tasks
        return cls(covering)

    # Tables

    def rollouts(self) -> Tables:
        """Return the tables of the rollout stage.

        Raises:
            StoreError: a file is missing, damaged or of another version, or its rows do not belong together.
        """
        pieces: dict[TableSchema, list[pa.Table]] = {schema: [] for schema in STORE_TABLES}
        stored: dict[TableSchema, set[str]] = {FRAMES: set(), PROMPTS: set()}
        for old in self.covering:
            every, steps, calls = (old.read(schema) for schema in (EPISODES, STEPS, CALLS))
            old.refuse_stale(ROLLOUT, rollout_inputs(old.store.run, old.shard, old.tasks_of(every)))
            lengths = every["num_steps"]
            expected = (old.shard.stop - old.shard.first) * old.store.config.rollouts
            if (every.num_rows, steps.num_rows) != (expected, _sum(lengths)):
                actual = f"{every.num_rows} episodes and {steps.num_rows} steps"
                raise old.apart(f"{actual}, expected {expected} and {_sum(lengths)}")
            first, count = old.episodes
            episodes = every.slice(first, count)
            steps = steps.slice(_sum(lengths.slice(0, first)), _sum(episodes["num_steps"]))
            pieces[EPISODES].append(episodes)
            pieces[STEPS].append(steps)
            pieces[CALLS].append(_of_episodes(calls, episodes["episode_id"]))
            for schema, key, used in (
                (FRAMES, "frame_id", _shown(steps)),
                (PROMPTS, "prompt_hash", _flat(steps["prompt_hash"])),
            ):
                fresh = [each for each in used.unique().to_pylist() if each not in stored[schema]]
                pieces[schema].append(old.named(old.read(schema), key, fresh))
                stored[schema].update(fresh)
        return {schema: _joined(schema, tables) for schema, tables in pieces.items()}

    def labels(self) -> Tables:
        """Return the current labels, their prompts, and the calls of a teacher that is a model.

        Raises:
            StoreError: a file is missing, damaged or of another version, or its rows do not belong together.
        """
        pieces: dict[TableSchema, list[pa.Table]] = {schema: [] for schema in (LABELS, PROMPTS, CALLS)}
        for old in self.covering:
            store, shard = old.store, old.shard
            old.refuse_stale(label_stage(store.config), label_inputs(store, store.run, shard))
            every = old.read(EPISODES, ["episode_id", "failed"])
            failed = every["failed"].fill_null(False)
            first, count = old.episodes
            ids = every["episode_id"].slice(first, count).filter(failed.slice(first, count))
            rows = old.read(LABELS).slice(_sum(failed.slice(0, first)), len(ids))
            if not rows["episode_id"].equals(ids):
                raise old.apart(f"its labels are not those of its {_sum(failed)} failures")
            pieces[LABELS].append(rows)
            pieces[PROMPTS].append(old.read_file(store.label_prompts_file(shard), PROMPTS))
            spent = store.label_calls_file(shard)
            if spent is not None:
                pieces[CALLS].append(_of_episodes(old.read_file(spent, CALLS), ids))
        tables = {schema: _joined(schema, parts) for schema, parts in pieces.items()}
        # As a build writes them: what the Analyzer is shown of all labels, then what the teacher was.
        hashes = (_flat(tables[LABELS][column]).drop_null() for column in ("prompt_hash", "teacher_prompt_hash"))
        shown = pa.concat_arrays(hashes).unique().to_pylist()
        tables[PROMPTS] = _joined(PROMPTS, [self.covering[0].named(tables[PROMPTS], "prompt_hash", shown)])
        return tables

    def tasks(self) -> list[Task]:
        """Return the levels of the shard.

        Raises:
            StoreError: a file is missing, damaged or of another version.
        """
        tasks: list[Task] = []
        for old in self.covering:
            episodes = old.read(EPISODES, [each.name for each in fields(Task)])
            tasks += old.tasks_of(episodes.slice(*old.episodes))
        return tasks


def _joined(schema: TableSchema, pieces: Sequence[pa.Table]) -> pa.Table:
    """Join pieces of a table to one that is written as if it had been made at once."""
    if not pieces:
        return schema.arrow.empty_table()
    whole = pa.concat_tables([piece.select(list(schema.names)) for piece in pieces]).combine_chunks()
    return pa.Table.from_arrays(whole.columns, schema=schema.arrow)


def _of_episodes(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    mine = set(ids.to_pylist())
    return rows.filter(pa.array([each in mine for each in rows["episode_id"].to_pylist()], pa.bool_()))


def _shown(steps: pa.Table) -> pa.Array:
    """Return the ids of the frames of steps in the order in which a shard stores them."""
    one, inside, other = (steps[name] for name in ("frame_id", "inside_frame_ids", "next_frame_id"))
    if inside.null_count == len(inside):
        order = np.arange(2 * len(one)).reshape(2, -1).T.ravel()
        return pa.concat_arrays([_flat(one), _flat(other)]).take(pa.array(order))
    rows = zip(one.to_pylist(), inside.to_pylist(), other.to_pylist(), strict=True)
    return pa.array([name for before, between, after in rows for name in (before, *(between or ()), after)])


def _flat(column: pa.ChunkedArray) -> pa.Array:
    chunk: Any = column.combine_chunks()
    return pa.concat_arrays(chunk.chunks) if isinstance(chunk, pa.ChunkedArray) else chunk


def _sum(column: pa.ChunkedArray) -> int:
    return sum(column.to_pylist())
