"""The contract of an export format (group ``pivot.exporters``): the rows and columns that a trainer reads.

A format is one file: a subclass of :class:`Exporter` with the columns of its tables. ``pivot export NAME STORE`` runs
it over the shards of a finished store; the format ``dataset`` is a part of every store.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import pyarrow as pa

from ...collage import collage, panel
from ...core.contracts import Answer, Fits, Terms
from ...core.plugins import Plugin, Settings
from ...labeling.episode import PLAYED, FailedEpisode
from ...solvers.base import Solver
from ..store.config import Shard
from ..store.dataset_rows import SIDES, FrameReader, drawn_tiles, trainable
from ..store.schema import EPISODES, FRAMES, LABELS, PROMPTS, STEPS, TableSchema
from ..store.store import Store
from ..store.tables import FAILURE_COLUMNS, Rows, check_steps, failed_episodes, steps_by_episode


@dataclass(frozen=True, slots=True)
class LabelledEpisode:
    """A complete episode of a shard with its steps and, for an accepted failure, its label."""

    episode: dict[str, Any]
    """Row of the table ``episodes``."""
    steps: Rows
    """Rows of the table ``steps``, in order."""
    side: str
    """``train`` or ``validation``."""
    label: dict[str, Any] | None
    """Row of the table ``labels`` if it belongs to the training set, else None."""
    messages: str
    """Analyzer prompt of the label, JSON; empty without a label."""
    frames: FrameReader
    evidence: Sequence[str]
    """Confirmation of the actions and the level; empty for an import without any, from which no row may be made."""

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """The Analyzer prompt as chat messages; image parts name their frame."""
        return json.loads(self.messages) if self.messages else []

    def collage(self) -> dict[str, Any]:
        """Return the step-labelled collage as an image cell."""
        tiles = drawn_tiles(self.episode["env"], self.steps, self.frames)
        return self.frames.image(collage(tiles.frames, tiles.labels), self.steps[0]["frame_id"])

    def panel(self, step: int) -> dict[str, Any]:
        """Return the tiles before, at and after a step as an image cell."""
        tiles = drawn_tiles(self.episode["env"], self.steps, self.frames)
        return self.frames.image(panel(tiles.steps, step), self.steps[0]["frame_id"])


@dataclass(frozen=True)
class LabelledShard:
    """The stored rows of a shard, each table read once."""

    store: Store
    shard: Shard
    sides: Mapping[str, str]
    """Side of the split by episode id."""

    @cached_property
    def steps(self) -> pa.Table:
        """The table ``steps``."""
        return self.store.read(STEPS, self.shard)

    @cached_property
    def prompts(self) -> dict[str, str]:
        """The stored messages of the agent's prompts, JSON, by hash."""
        table = self.store.read(PROMPTS, self.shard, ["prompt_hash", "messages"])
        return dict(zip(table["prompt_hash"].to_pylist(), table["messages"].to_pylist(), strict=True))

    @cached_property
    def failures(self) -> dict[str, FailedEpisode]:
        """The failed, complete episodes by id, as replays take them."""
        rows = self.store.read(EPISODES, self.shard, FAILURE_COLUMNS)
        rows = failed_episodes(rows, self.steps, self.store.evidence(self.shard))
        return {each.episode_id: each for each in rows}

    def episodes(self) -> Iterator[LabelledEpisode]:
        """Yield the complete episodes, in order.

        Raises:
            StoreError: a file is missing or damaged.
        """
        store, shard = self.store, self.shard
        frames = FrameReader(store.read(FRAMES, shard))
        steps = steps_by_episode(self.steps.to_pylist())
        labels = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
        confirmed = store.evidence(shard)
        table = store.read_file(store.label_prompts_file(shard), PROMPTS, ["prompt_hash", "messages"])
        prompts = dict(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
        for episode in store.read(EPISODES, shard).to_pylist():
            name = episode["episode_id"]
            if episode["status"] == "complete":
                label = labels.get(name)
                if label is not None and not trainable(label, store.config):
                    label = None
                messages = "" if label is None else prompts[label["prompt_hash"]]
                mine = steps.get(name, [])
                check_steps(episode, mine, label)
                evidence = PLAYED if confirmed is None else confirmed.get(name, ())
                yield LabelledEpisode(episode, mine, self.sides[name], label, messages, frames, evidence)


ExportTables = dict[tuple[TableSchema, str], pa.Table]
"""Tables by their columns and side of the split."""


def _has_its_columns(tables: Any) -> bool:
    return all(
        isinstance(key, tuple)
        and len(key) == 2
        and isinstance(key[0], TableSchema)
        and key[1] in SIDES
        and isinstance(table, pa.Table)
        and table.schema.equals(key[0].arrow)
        for key, table in tables.items()
    )


class Exporter(Plugin):
    """Composes the tables of one format from the rows of a shard."""

    terms: ClassVar[Terms] = Terms(
        answers={
            "tables": Answer(Annotated[dict[Any, Any], Fits(_has_its_columns, "tables by (TableSchema, side)")]),
            "file": Answer(str),
        }
    )
    config_type: ClassVar[type[Settings]] = Settings
    version: ClassVar[str] = "1"
    """Raised with every change of the rows that the format makes of an unchanged store."""
    plays: ClassVar[bool] = False
    """Whether environments run, whose code the call then has to allow."""
    shows_prompts: ClassVar[bool] = False
    """Whether its rows need the prompts of the agent, which an import may lack."""
    summary: ClassVar[str] = ""
    """Description of a row for the card of an export; without one, the export gets no card."""

    @classmethod
    def refusal(cls, solver: type[Solver]) -> str | None:
        """Return why an environment with this solver has no rows here, and what to do; None if it has rows."""
        del solver
        return None

    @abstractmethod
    def tables(self, shard: LabelledShard) -> ExportTables:
        """Return the tables of a shard by columns and side of the split; one without rows gets no file."""

    def file(self, schema: TableSchema, shard: Shard, side: str) -> str:
        """Return the name of a table's file, relative to the folder of the export."""
        return f"{schema.name}/{shard.env}/{side}-{shard.number:05d}.parquet"
