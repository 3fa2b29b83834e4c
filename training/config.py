"""The one typed config of a training run: all that decides its weights, resolved before anything starts.

``OUT/run.json`` holds it; a recipe is a file with some of its fields and the reasons beside them. Numbers are those of
the paper where it gives them (spec section 8).
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from ..errors import TrainingError
from ..labeling.vocabulary import Vocabulary
from ..plugins import Settings, explain

Precision = Literal["auto", "bf16", "fp32"]
Schedule = Literal["constant", "linear", "cosine"]

RECIPES = "recipes"
RECIPE_SUFFIX = ".yaml"


class Shape(Settings):
    """The architecture that a recipe is for, for an estimate where the model itself is not at hand."""

    model_type: str
    """Such as ``qwen2_5_vl``."""
    text: dict[str, Any]
    """``text_config`` of the model."""
    vision: dict[str, Any]
    """``vision_config`` of the model."""
    tie_word_embeddings: bool = True


class SftConfig(Settings):
    """A run of Stage I: supervised fine-tuning of the Analyzer."""

    dataset: str
    """A store, a dataset folder, or a hub id."""
    model: str
    """A ``save_pretrained`` folder, or a hub id."""
    revision: str | None = None
    """Revision of the model on the hub."""
    configs: tuple[str, ...] = ("all",)
    """Environments to train on together, or ``all``. The paper trains one checkpoint an environment."""
    epochs: int = Field(default=3, ge=1, le=100_000)
    """Passes over the training side."""
    lr: float = Field(default=2e-6, gt=0)
    """Peak learning rate of AdamW."""
    batch: int = Field(default=8, ge=1)
    """Records an update, over all processes and accumulation steps."""
    micro_batch: int = Field(default=1, ge=1)
    """Records that one process holds in memory at a time; it changes no result beyond rounding."""
    max_length: int = Field(default=8192, ge=1)
    """Longest record in tokens, its picture's included; a longer one is refused, never cut."""
    schedule: Schedule = "cosine"
    """How the learning rate falls after its warm-up (the paper is silent)."""
    warmup: float = Field(default=0.03, ge=0, lt=1)
    """Share of the updates in which the learning rate rises."""
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient is scaled down to this norm."""
    precision: Precision = "auto"
    """``bf16`` computes in bfloat16 over weights kept in float32; ``auto`` is bf16 on a GPU, fp32 elsewhere."""
    gradient_checkpointing: bool = True
    """Compute activations again in the backward pass: a third more time, a fraction of the memory."""
    lora: bool = False
    """Train low-rank adapters of the language model, and merge them into the checkpoint."""
    lora_rank: int = Field(default=64, ge=1)
    lora_alpha: int = Field(default=128, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    streaming: bool = False
    """Read the training side from its files with every epoch, mixed within a buffer, instead of holding it."""
    target_vocabulary: Vocabulary | None = None
    """Words for failure modes that prompts and targets shall use; None takes them as the dataset has them."""
    save_every: int = Field(default=0, ge=0)
    """Updates between checkpoints; 0 saves at the end of every epoch."""
    evaluate: bool = True
    """Whether the loss on the validation side is measured with every checkpoint."""
    loader_workers: int = Field(default=0, ge=0)
    """Processes a rank that prepare batches; 0 prepares them in the training process."""
    report_to: tuple[str, ...] = ()
    """Trackers of the transformers library, such as wandb or tensorboard."""
    shape: Shape | None = None
    """Of the model, for ``--dry-run`` where it cannot be loaded."""

    @field_validator("configs")
    @classmethod
    def _some(cls, configs: tuple[str, ...]) -> tuple[str, ...]:
        if not configs:
            raise ValueError("found none, expected environments, or all")
        return configs


NOT_RESULTS = ("micro_batch", "save_every", "evaluate", "loader_workers", "report_to", "shape")
"""Fields that may differ when a run is gone on with: they change no weight beyond rounding."""


def recipes() -> dict[str, Any]:
    """Return the shipped recipes by name."""
    folder = files(__package__).joinpath(RECIPES)
    return {
        each.name.removesuffix(RECIPE_SUFFIX): each
        for each in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if each.name.endswith(RECIPE_SUFFIX)
    }


def recipe_fields(name: str) -> dict[str, Any]:
    """Return what a recipe sets; ``name`` is a shipped one's or a path.

    Raises:
        TrainingError: there is no such recipe, or it is no list of settings.
    """
    shipped = recipes()
    if name not in shipped and not Path(name).exists():
        raise TrainingError(f"no recipe {name!r}, expected a file or one of: {', '.join(shipped)}")
    where = shipped.get(name, Path(name))
    try:
        fields = yaml.safe_load(where.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise TrainingError(f"recipe {name} cannot be read: {error}; expected lines such as `lr: 2.0e-6`") from error
    if not isinstance(fields, dict):
        raise TrainingError(f"recipe {name} holds a {type(fields).__name__}, expected settings such as `lr: 2.0e-6`")
    return fields


def make_sft_config(fields: dict[str, Any]) -> SftConfig:
    """Check the settings of a run and complete them with their defaults.

    Raises:
        TrainingError: a setting is unknown, missing, or cannot be used.
    """
    try:
        return SftConfig.model_validate(fields)
    except ValidationError as error:
        raise TrainingError(explain(error, "training setting ", SftConfig)) from error


def differing_fields(old: dict[str, Any], new: SftConfig) -> list[str]:
    """Name the settings in which a run that is gone on with differs from the one in ``run.json``."""
    now = json.loads(new.model_dump_json())
    return [name for name in now if name not in NOT_RESULTS and old.get(name) != now[name]]
