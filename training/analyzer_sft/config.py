"""Config of Stage I: every setting of ``pivot train sft``. Numbers are the paper's where it gives them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from ...core.plugins import Settings
from ..config import Precision, Schedule, Shape, checked, fields_marked, recipe_fields, setting

OPTIMISATION = "Optimisation"
TARGETS = "Model and targets"
MEMORY = "Memory and speed"
REPORTS = "Checkpoints and reports"
CHECKS = "Checks"


class SftConfig(Settings):
    """A run of Stage I: supervised fine-tuning of the Analyzer."""

    dataset: str
    """Dataset to train on: a store, or a dataset folder."""
    model: str
    """Model to start from: a ``save_pretrained`` folder, or a hub id."""
    revision: str | None = None
    """Revision of the model on the hub."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as ``enable_thinking=false``."""
    configs: tuple[str, ...] = ("all",)
    """Environments to train on together, or ``all``; the paper trains one checkpoint per environment."""
    epochs: int = setting(3, panel=OPTIMISATION, ge=1, le=100_000)
    """Passes over the training split."""
    lr: float = setting(2e-6, panel=OPTIMISATION, gt=0)
    """Peak learning rate of AdamW."""
    batch: int = setting(8, panel=OPTIMISATION, ge=1)
    """Records per optimiser step, summed over all processes and accumulation steps."""
    micro_batch: int = setting(1, panel=MEMORY, by_rounding=True, ge=1)
    """Records that one process holds in memory at a time; results change by rounding alone."""
    max_length: int = setting(8192, panel=TARGETS, ge=1)
    """Longest record in tokens, image tokens included; a longer record is refused, never truncated."""
    schedule: Schedule = setting("cosine", panel=OPTIMISATION)
    """Shape of the learning rate after its warm-up; the paper does not give one."""
    warmup: float = setting(0.03, panel=OPTIMISATION, ge=0, lt=1)
    """Share of the optimiser steps in which the learning rate rises to its peak."""
    weight_decay: float = setting(0.0, panel=OPTIMISATION, ge=0)
    """Weight decay of AdamW."""
    max_grad_norm: float = setting(1.0, panel=OPTIMISATION, gt=0)
    """Largest L2 norm of the gradient; a larger gradient is scaled down to it."""
    precision: Precision = setting("auto", panel=MEMORY)
    """Precision of the computation: ``bf16`` computes in bfloat16 over float32 weights; ``auto`` is bf16 on a GPU, fp32
    elsewhere."""
    gradient_checkpointing: bool = setting(True, panel=MEMORY)
    """Recompute activations in the backward pass: a third more time, a fraction of the memory."""
    lora: bool = setting(False, panel=TARGETS)
    """Train low-rank adapters of the language model and merge them into the checkpoint."""
    lora_rank: int = setting(64, panel=TARGETS, ge=1)
    """Rank of the adapters; used with ``lora``."""
    lora_alpha: int = setting(128, panel=TARGETS, ge=1)
    """Scale of the adapters: their output is multiplied by ``lora_alpha`` over ``lora_rank``; used with ``lora``."""
    seed: int = setting(0, panel=OPTIMISATION, ge=0, lt=2**31)
    """Seed of the order of the records, and of the initial adapters."""
    save_every: int = setting(0, panel=REPORTS, by_rounding=True, ge=0)
    """Optimiser steps between checkpoints; 0 saves one at the end of every epoch."""
    evaluate: bool = setting(True, panel=REPORTS, by_rounding=True)
    """Measure the loss on the validation split with every checkpoint."""
    report_to: tuple[str, ...] = setting((), panel=REPORTS, by_rounding=True)
    """Experiment trackers of the transformers library, such as ``wandb`` or ``tensorboard``."""
    shape: Shape | None = setting(None, panel=CHECKS, by_rounding=True)
    """Architecture of the model, for ``dry_run`` where the model cannot be loaded; recipes set it."""

    # Settings of one call; not part of the stored config.

    out: Path | None = Field(default=None, exclude=True)
    """Folder of the run: checkpoints/, final/, run.json, loss.png; required unless ``check_only`` or ``dry_run`` is
    set."""
    recipe: str | None = Field(default=None, exclude=True)
    """Recipe whose settings are the defaults of this run: the name of a shipped one, or a YAML file."""
    resume: bool = Field(default=False, exclude=True)
    """Resume from the last complete checkpoint in ``out``."""
    check_only: bool = setting(False, panel=CHECKS, exclude=True)
    """Check every record, show one as the model sees it, and stop before training."""
    dry_run: bool = setting(False, panel=CHECKS, exclude=True)
    """Estimate the memory of one process, and stop before anything is read or written."""

    @model_validator(mode="before")
    @classmethod
    def _over_the_recipe(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("recipe"), str):
            return recipe_fields(fields["recipe"]) | fields
        return fields

    @field_validator("configs")
    @classmethod
    def _at_least_one(cls, configs: tuple[str, ...]) -> tuple[str, ...]:
        if not configs:
            raise ValueError("found an empty list, expected environments, or all")
        return configs


MAY_CHANGE = ("dataset", *fields_marked(SftConfig, "by_rounding"))
"""Fields that may differ when a run is resumed. The address of the dataset may, because its digest is compared."""


def make_sft_config(fields: Mapping[str, Any]) -> SftConfig:
    """Check the settings of a run of Stage I and complete them with their defaults.

    Raises:
        TrainingError: a setting is unknown, missing, or cannot be used.
    """
    return checked(SftConfig, fields)
