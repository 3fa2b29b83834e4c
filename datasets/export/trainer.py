"""Base of the formats for trainers: one folder per environment and side of the split, and one row builder."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from ...solvers.base import Solver
from ..store.config import Shard
from ..store.schema import TableSchema
from ..store.split import SIDES
from ..store.tables import Rows
from .base import Exporter, ExportTables, LabelledShard

WITHOUT_PLANS = {
    "heuristic": "a heuristic, which proves no action safe",
    "convention": "a convention, after which no action is fatal or safe",
}
"""Kinds of certificates without a plan, and what they are."""


class TrainerExporter(Exporter):
    """Composes the rows of one table."""

    name: ClassVar[str]
    """Registered name."""

    @abstractmethod
    def schema(self) -> TableSchema:
        """Return the columns, which depend on the settings."""

    @abstractmethod
    def rows(self, shard: LabelledShard) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield side of the split and cells of each row, in the order of the episodes."""

    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return the rows of a shard for both sides of the split."""
        rows: dict[str, Rows] = {side: [] for side in SIDES}
        for side, row in self.rows(shard):
            rows[side].append(row)
        schema = self.schema()
        return {(schema, side): schema.table(made, features=True, labels=shard.modes) for side, made in rows.items()}

    def file(self, schema: TableSchema, shard: Shard, side: str) -> str:
        """Return the name of a file: each environment and side of the split has a folder."""
        return f"{schema.name}/{shard.env}/{side}/{shard.number:05d}.parquet"


class PlanExporter(TrainerExporter):
    """A format whose rows need actions that are certainly safe."""

    version: ClassVar[str] = "3"
    plays: ClassVar[bool] = True

    @classmethod
    def refusal(cls, solver: type[Solver]) -> str | None:
        """Refuse solvers without plans."""
        what = WITHOUT_PLANS.get(solver.kind)
        return None if what is None else f"its certificate is {what}"
