"""Configs of the evaluations: every setting of ``pivot evaluate`` and ``pivot benchmark``."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ...core.plugins import Settings
from .items import Question
from .predictions import NAME

Pictures = Literal["shown", "blank", "exchanged"]
"""Treatment of the collages: shown as they are, blanked, or exchanged between records of different levels."""
Split = Literal["train", "validation"]
POLICY_RESULT = "evaluation/policy.json"
"""File with the figures of an evaluated policy, in its folder."""


class AskedModel(Settings):
    """Settings of a model that is asked about items, of one's own dataset or of the benchmark."""

    name: str = Field(default="", pattern=rf"{NAME}|^$", max_length=200)
    """Name in tables, one line; by default the model's."""
    pictures: Pictures = "shown"
    """Treatment of the pictures: ``shown``, ``blank``, or ``exchanged`` between items of different levels."""
    shots: int = Field(default=0, ge=0, le=8)
    """Worked examples of other levels in front of every question."""
    backend: str | None = None
    """Model backend: by default ``openai`` with a server address, else ``transformers``."""
    revision: str | None = None
    """Revision of the model."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; by default 0, greedy. It is left out for a server that refuses it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest reply in tokens, thoughts included; by default 512."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as ``enable_thinking=false``."""
    batch_size: int | None = Field(default=None, ge=1)
    """Cases per forward pass of a model in this process (backend ``transformers``)."""
    service: dict[str, Any] = Field(default_factory=dict)
    """Settings of the model server, such as base_url; they do not affect the figures."""

    @property
    def backend_name(self) -> str:
        """Backend of the model: the named one; else ``openai`` with an address, or ``transformers``."""
        return self.backend or ("openai" if "base_url" in self.service else "transformers")


class RecordChoice(Settings):
    """Selection of the records of a dataset that become items."""

    env: str = "all"
    """Environment whose records are evaluated, or ``all``; ``all`` means the run's own if it was trained on only
    one."""
    side: Split = "validation"
    """Split of the dataset whose records are evaluated; the baselines are fitted on the other one."""
    full_length: bool = False
    """Evaluate only failures that used every turn: the length of shorter ones reveals their last step."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of records per environment, sampled by a hash of their ids; by default all."""
    learned: bool = True
    """Fit the learned baseline, boosted trees, too."""


class AnalyzerEvaluationConfig(AskedModel, RecordChoice):
    """An evaluation of an Analyzer on the labelled failures of a dataset."""

    model: str
    """Analyzer to evaluate: a run of ``pivot train sft``, a checkpoint folder, a hub id, or a served model."""
    data: str | None = None
    """Dataset to evaluate on: a store, or a dataset folder; by default the one that the run was trained on."""
    out: Path | None = None
    """Folder of items, predictions, result and table, by default ``evaluation`` in the folder of the run; run the same
    command again to resume."""


class BaselinesConfig(RecordChoice):
    """A measurement of the baselines that read the log alone."""

    data: str
    """Dataset: a store, or a dataset folder."""
    out: Path | None = None
    """Folder of items and table; by default nothing is written."""


class MakeConfig(Settings):
    """A benchmark to make."""

    out: Path
    """Folder of the benchmark; an existing one is checked and kept, an interrupted one is resumed."""
    env: tuple[str, ...] = ()
    """Environment of the benchmark, or ``gym:ID`` for any deterministic one of gymnasium; all seven by default."""
    private: bool = False
    """Make levels and rollouts from 128 random bits that stay in the folder ``private``, so that nobody else can."""
    scale: float = Field(default=1.0, ge=0.01, le=1)
    """Share of the benchmark that is made, for a trial; figures of different shares do not compare."""
    learned: bool = True
    """Fit the learned baseline, boosted trees, too."""


class RunConfig(AskedModel):
    """A model to ask about the benchmark."""

    model: str
    """Model to ask: a served model, a run of ``pivot train sft``, a checkpoint folder, or a hub id."""
    data: Path
    """Folder of the benchmark."""
    out: Path
    """Folder of predictions, result and table; run the same command again to resume."""
    question: tuple[Question, ...] = ()
    """Question to ask: ``twin``, ``locate`` (tasks pivot and mode), ``safe`` or ``credit``; all by default."""
    env: tuple[str, ...] = ()
    """Environment to ask about; all by default."""


class ScoreConfig(Settings):
    """A file of predictions to score."""

    predictions: Path
    """File of predictions: a header and one row per item, as docs/how-to/benchmark.md describes."""
    data: Path
    """Folder of the benchmark, or the folder ``items`` of an evaluation."""
    out: Path | None = None
    """Folder of result and table; by default the folder of the predictions."""


class TableConfig(Settings):
    """Results to put side by side."""

    results: tuple[Path, ...]
    """Results of the same items: files ``result.json``, or their folders."""
    data: Path | None = None
    """Folder of the benchmark or of the items, whose baselines are then rows of the table, too."""
    out: Path
    """Folder of table.md, table.json and table.png."""


class PolicyEvaluationConfig(Settings):
    """An evaluation of a policy on held-out levels."""

    model: str
    """Policy to evaluate: a run of ``pivot train rl``; with ``env`` any checkpoint folder or hub id."""
    env: str | None = None
    """Environment to evaluate on; by default the run's."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment, over those of the run."""
    checkpoint: Literal["final", "best"] = "final"
    """Checkpoint of the run: the last one, or the one with the best validation."""
    episodes: int | None = Field(default=None, ge=1)
    """Episodes in total, spread evenly over the held-out levels; by default the run's, or 128."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature; by default the run's, or 0.4."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest reply in tokens; by default the run's, or 512."""
    levels: int | None = Field(default=None, ge=0)
    """Number of different tasks, of which a tenth is held out; by default the run's, or the paper's number."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Seed of levels and replies; by default the run's, or 0."""
    out: Path | None = None
    """Folder of the result; by default ``model``."""
