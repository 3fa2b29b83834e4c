"""Configs of the evaluations: every setting of ``pivot evaluate analyzer``, ``baselines`` and ``policy``."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ...labeling.vocabulary import Vocabulary
from ...plugins import Settings

Pictures = Literal["shown", "blank", "exchanged"]
"""Treatment of the collages: shown as they are, blanked, or exchanged between records of different levels."""
Split = Literal["train", "validation"]
POLICY_RESULT = "evaluation/policy.json"
"""File with the figures of an evaluated policy, in its folder."""


class AskedModel(Settings):
    """Settings of a model that is asked; the evaluation of an Analyzer and the benchmark share them."""

    backend: str | None = None
    """Model backend: by default ``openai`` with a server address, else ``transformers``."""
    revision: str | None = None
    """Revision of the model."""
    temperature: float | None = Field(default=None, ge=0)
    """Sampling temperature; by default 0, greedy. It is left out for a server that refuses it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest reply in tokens, thoughts included; by default 512."""
    batch_size: int | None = Field(default=None, ge=1)
    """Cases per forward pass of a model in this process (backend ``transformers``)."""
    service: dict[str, Any] = Field(default_factory=dict)
    """Settings of the model server, such as base_url; they do not affect the figures."""

    @property
    def asks_a_model(self) -> bool:
        """Whether a model answers, and not a stand-in."""
        return True


class AnalyzerEvaluationConfig(AskedModel):
    """An evaluation of an Analyzer on labelled failures."""

    model: str
    """Analyzer to evaluate: a run of ``pivot train sft``, a checkpoint folder, a hub id, or a served model."""
    data: str | None = None
    """Dataset to evaluate on: a store, a dataset folder or a hub id; by default the one that the run was trained on."""
    env: str = "all"
    """Environment whose records are evaluated, or ``all``; ``all`` means the run's own if it was trained on only
    one."""
    side: Split = "validation"
    """Split of the dataset whose records are evaluated."""
    pictures: Pictures = "shown"
    """Treatment of the collages: ``shown``, ``blank``, or ``exchanged`` between records of different levels."""
    full_length: bool = False
    """Evaluate only failures that used every turn: the length of shorter ones reveals their last step."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of records per environment, sampled by a hash of their ids; by default all."""
    shots: int = Field(default=0, ge=0)
    """Worked examples from the training split in front of every question."""
    target_vocabulary: Vocabulary | None = None
    """Names of failure modes in prompts and targets: the certificate's or the paper's; by default those the
    run was trained on, or the dataset's own."""
    out: Path | None = None
    """Folder of the report; by default ``evaluation`` in the folder of the run."""
    name: str = ""
    """Name of the Analyzer in tables; by default the model's."""
    beside: dict[str, Path] = Field(default_factory=dict)
    """Other evaluations in the same table: the folder of each by the name that the table shows."""
    learned: bool = True
    """Fit the learned baselines, gradient boosting and a small transformer, too."""
    seed: int = Field(default=0, ge=0)
    """Seed of the intervals, of the exchange of collages and of the learned baselines."""
    suite: bool = False
    """Former name of ``pivot benchmark make`` and ``run``: ask about the benchmark, made from seeds."""
    suite_data: Path | None = None
    """Folder of the benchmark; by default ``suite-data`` in ``out``."""
    scale: float = Field(default=1.0, ge=0.01, le=1)
    """Share of the benchmark that is made, for a trial; figures of different shares do not compare."""


class BaselinesConfig(Settings):
    """A measurement of the baselines that read the log alone."""

    data: str
    """Dataset: a store, a dataset folder, or a hub id."""
    env: str = "all"
    """Environment whose records are evaluated, or ``all``."""
    side: Split = "validation"
    """Split of the dataset whose records are evaluated; the baselines are fitted on the other one."""
    full_length: bool = False
    """Evaluate only failures that used every turn: the length of shorter ones reveals their last step."""
    learned: bool = True
    """Fit the learned baselines, gradient boosting and a small transformer, too."""
    seed: int = Field(default=0, ge=0)
    """Seed of the intervals and of the learned baselines."""
    out: Path | None = None
    """Folder for baselines.json and baselines.md; by default nothing is written."""


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
    beside: Path | None = None
    """Folder of another evaluated run, to report the gain over it."""
    out: Path | None = None
    """Folder of the result; by default ``model``."""
