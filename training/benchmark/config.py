"""Configs of the benchmark: every setting of ``pivot benchmark make``, ``run``, ``score`` and ``table``."""

from pathlib import Path

from pydantic import Field

from ...plugins import Settings
from ..evaluation.config import AskedModel, Pictures
from .items import Images, Question
from .make import SEED
from .tables import By


class MakeConfig(Settings):
    """A benchmark to make."""

    out: Path
    """Folder of the benchmark; an existing one is checked and kept, an interrupted one is resumed."""
    env: tuple[str, ...] = ()
    """Environment of the benchmark, or ``gym:ID`` for any deterministic one of gymnasium; all seven by default."""
    images: Images = "collage"
    """Pictures of an item: one ``collage`` of all steps, or ``steps``, a separate picture per step."""
    max_pictures: int | None = Field(default=None, ge=3, le=100)
    """Maximum number of separate pictures per item, by default 32; of a longer episode, evenly spaced steps are
    shown."""
    thoughts: bool = False
    """Show the agent's own words in the log, too."""
    seed: int = Field(default=SEED, ge=0)
    """Seed of levels and rollouts; another seed makes another benchmark."""
    private: bool = False
    """Leave the seed out of benchmark.json, so that the fingerprint can be published without it."""
    scale: float = Field(default=1.0, ge=0.01, le=1)
    """Share of the benchmark that is made, for a trial; figures of different shares do not compare."""
    baselines: bool = True
    """Measure the baselines that read the log alone."""
    learned: bool = True
    """Fit the learned baselines, boosted trees and a small transformer, too."""


class RunConfig(AskedModel):
    """A model to ask."""

    model: str | None = None
    """Model to ask: a served model, a run of ``pivot train sft``, a checkpoint folder, or a hub id."""
    data: Path
    """Folder of the benchmark."""
    out: Path
    """Folder of predictions, result and table; run the same command again to resume."""
    stand_in: str | None = None
    """Scripted stand-in to ask in place of a model: ``oracle``, ``uniform``, or ``mixture-RATE``."""
    name: str = ""
    """Name in tables; by default the model's."""
    question: tuple[Question, ...] = ()
    """Question to ask: ``locate`` (tasks pivot and mode), ``safe`` or ``credit``; all by default."""
    env: tuple[str, ...] = ()
    """Environment to ask about; all by default."""
    pictures: Pictures = "shown"
    """Treatment of the pictures: ``shown``, ``blank``, or ``exchanged`` between items of different levels."""
    shots: int = Field(default=0, ge=0, le=8)
    """Worked examples of other levels in front of every question."""

    @property
    def asks_a_model(self) -> bool:
        """Whether a model answers, and not a stand-in; see the base class."""
        return self.stand_in is None


class ScoreConfig(Settings):
    """A file of predictions to score."""

    predictions: Path
    """File of predictions: a header and one row per item, as docs/how-to/benchmark.md describes."""
    data: Path
    """Folder of the benchmark."""
    out: Path | None = None
    """Folder of result and table; by default the folder of the predictions."""
    by: By | None = None
    """``player``: split the table by the kind of player; result.json always holds both."""


class TableConfig(Settings):
    """Results to put side by side."""

    results: tuple[Path, ...]
    """Results of the same benchmark: files ``result.json``, or their folders."""
    data: Path | None = None
    """Folder of the benchmark, whose baselines are then rows of the table, too."""
    by: By | None = None
    """``player``: split the table by the kind of player."""
    out: Path
    """Folder of table.md, table.json and table.png."""
