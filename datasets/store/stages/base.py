"""Stages of a shard: rollout, label, export. :func:`run_stage` runs a stage, in any process.

A stage reads the tables of the stage before it. Its receipt holds the digest of what decides its files, and counts of
their rows, which a summary adds up. A shard whose receipt still holds is skipped, and an earlier result with pending
episodes is completed; a build resumes in this way.
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar

import pyarrow as pa

from ....core.errors import StoreError
from ....core.progress import Reporter
from ....core.storage import FileRecord
from ....core.storage.base import Receipt
from ..config import Shard
from ..parquet import write_tables
from ..schema import CALLS, TableSchema
from ..store import Store

ROLLOUT, LABEL, EXPORT = "rollout", "label", "export"
PENDING_EPISODES = "pending"
"""Fact of a receipt: ids of the episodes that ended in an error."""


def file_digests(store: Store, stage: str, shard: Shard) -> dict[str, str]:
    """Digests of the files that a shard's earlier stage left; those of calls, which may differ freely, are left out."""
    receipt = store.receipt(stage, shard)
    files = receipt.files if receipt is not None else {}
    return {name: record.sha256 for name, record in files.items() if name.split("/")[0] != CALLS.name}


@dataclass(frozen=True, slots=True)
class ShardResult:
    """Report of a stage about one shard; small, so that it can travel between processes."""

    shard: Shard
    stage: str
    reused: bool
    """Whether the receipt of an earlier run was still valid."""
    files: dict[str, FileRecord]
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)
    """Duration of the stage."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Work that is left of a shard."""

    inputs: str
    """Digest of everything that decides the files."""
    episodes: frozenset[str] | None = None
    """Ids of the episodes that an earlier run left incomplete; None when the whole shard has to be made."""


@dataclass(frozen=True, slots=True)
class Product:
    """Tables of a shard, before they are written."""

    tables: Sequence[tuple[str, TableSchema, pa.Table]]
    """File name, schema and rows of each."""
    facts: dict[str, Any]
    """Counts for the receipt, so that a summary does not have to read the tables."""


@dataclass(frozen=True)
class ShardFiles(ABC):
    """Files of one stage of one shard with their receipt: checking and writing them.

    A scheduler that makes the tables of several shards at a time, such as a probe, uses this alone.
    """

    store: Store
    shard: Shard

    title: ClassVar[str]
    """Name of the stage for reporters."""
    sparse: ClassVar[bool] = False
    """Whether a table without rows has no file."""
    pending_fact: ClassVar[str | None] = None
    """Fact that lists the incomplete episodes of a shard; None for a stage without such episodes."""

    @property
    def name(self) -> str:
        """Name of the stage in receipts."""
        return self.title

    @property
    def receipt_file(self) -> str:
        """Name of the receipt, relative to the store."""
        return self.store.receipt_file(self.name, self.shard)

    @abstractmethod
    def inputs(self) -> str:
        """Return the digest of everything that decides the files."""

    def check(self) -> Pending | ShardResult:
        """Return the result of an earlier run if it is complete, else the remaining work."""
        inputs = self.inputs()
        receipt = Receipt.read(self.store.storage, self.receipt_file)
        if receipt is None or not receipt.holds(self.store.storage, inputs):
            return Pending(inputs)
        if self.pending_fact is not None and receipt.facts[self.pending_fact]:
            return Pending(inputs, frozenset(receipt.facts[self.pending_fact]))
        return ShardResult(self.shard, self.name, True, receipt.files, receipt.facts)

    def write(self, pending: Pending, product: Product) -> ShardResult:
        """Validate and write the tables, then the receipt; from now on the shard counts as done.

        Raises:
            StoreError: a table has other columns than its schema, or the disk fails.
        """
        for name, schema, table in product.tables:
            if not table.schema.equals(schema.arrow):
                raise StoreError(f"{name} is not written: found the columns {table.schema}, expected {schema.arrow}")
        files = write_tables(self.store.storage, product.tables, sparse=self.sparse)
        Receipt(pending.inputs, files, product.facts).write(self.store.storage, self.receipt_file)
        return ShardResult(self.shard, self.name, False, files, product.facts)


@dataclass(frozen=True)
class Stage(ShardFiles):
    """One stage of one shard. It is sent to workers, each of which opens the store once."""

    @property
    def episodes(self) -> int:
        """Number of episodes in the shard; imported levels have fewer of them than the level with most."""
        receipt = self.store.receipt(ROLLOUT, self.shard) if self.store.is_imported else None
        return (
            receipt.facts["episodes"] if receipt else (self.shard.stop - self.shard.first) * self.store.config.rollouts
        )

    @abstractmethod
    def make(self, pending: Pending) -> Product:
        """Make the tables of the shard, or complete the stored ones.

        Raises:
            StoreError: stored rows cannot be read.
        """


def run_stage(stage: Stage) -> ShardResult:
    """Run a stage on one shard: skip it if complete, else compute, validate and write it, the receipt last.

    Raises:
        StoreError: the shard cannot be read or written. Others as :meth:`Stage.make` of the stage.
    """
    began = perf_counter()
    result = stage.check()
    if isinstance(result, Pending):
        with rare_collections():
            result = stage.write(result, stage.make(result))
    return replace(result, seconds=perf_counter() - began)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run less often meanwhile: rows are many objects without cycles, a fifth of a stage."""
    before = gc.get_threshold()
    gc.set_threshold(before[0] and max(before[0], YOUNG_OBJECTS), *before[1:])  # 0: somebody switched it off
    try:
        yield
    finally:
        gc.set_threshold(*before)


YOUNG_OBJECTS = 50_000
"""New objects after which the garbage collector looks for cycles while a stage runs; Python's default is 700."""


def report_stored(reporter: Reporter, result: ShardResult) -> None:
    """Report a stored shard."""
    size = sum(record.bytes for record in result.files.values())
    stage = result.stage.partition("-")[0]  # without the label version
    reporter.stored(stage, result.shard.stem, result.seconds, size, reused=result.reused)
