"""Helpers for tests of training: a small model on disk whose tokenizer fits the small store, and short runs."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pivot.labeling.target import build_target
from pivot.tests.models.from_scratch import DEVIATION
from pivot.tests.models.tiny_vlm import save_tiny_vlm
from pivot.training.analyzer_sft.config import SftConfig, make_sft_config
from pivot.training.analyzer_sft.samples import Sample, TrainingData, read_dataset

pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")


def text_of(sample: Sample) -> str:
    """The text part of a prompt."""
    return "".join(part["text"] or "" for message in sample.prompt for part in message["content"])


def held(dataset: Path, *configs: str) -> Sequence[Sample]:
    """Return the training split in memory."""
    return list(read_dataset(str(dataset), configs or ("all",)).train)


def save_small_model(folder: Path, dataset: Path) -> Path:
    """Save a tiny model whose tokenizer has read the dataset; every line of a prompt but the log's is one token."""
    samples = held(dataset)
    lines = {line for sample in samples for line in text_of(sample).splitlines()}
    whole = sorted(line for line in lines if len(line) > 12 and not line.startswith("step "))
    save_tiny_vlm(folder, [sample.target for sample in samples], whole)
    return folder


def save_quick_model(folder: Path, dataset: Path) -> Path:
    """Save a model that learns Sokoban's targets within some dozen updates: all text between numbers is one token."""
    samples = held(dataset, "sokoban")
    lines = {line for sample in samples for line in text_of(sample).splitlines()}
    wording = {part for sample in samples for part in re.split(r"(\d+)", sample.target)}
    whole = {line for line in lines if len(line) > 12 and not line.startswith("step ")} | wording
    whole = sorted(text for text in whole if len(text) > 1)
    save_tiny_vlm(folder, [sample.target for sample in samples], whole, DEVIATION)
    return folder


def config_of(dataset: Path, model: Path, **fields: Any) -> SftConfig:
    """Settings of a short run on the CPU."""
    quick = {"batch": 4, "micro_batch": 4, "epochs": 2, "lr": 1e-3, "gradient_checkpointing": False, "evaluate": False}
    return make_sft_config({"dataset": str(dataset), "model": str(model), "configs": ("frozenlake",)} | quick | fields)


def uneven(dataset: Path, count: int = 4) -> TrainingData:
    """Records whose targets differ tenfold in length, and one more for validation."""
    samples = held(dataset, "frozenlake")[: count + 1]
    words = [1, 300, 10, 250]
    made = [
        replace(sample, target=build_target(sample.pivot_step, sample.failure_mode, " ".join(["ice"] * words[k % 4])))
        for k, sample in enumerate(samples[:count])
    ]
    return TrainingData(str(dataset), "digest", made, samples[count:])


def losses(folder: Path) -> dict[int, float]:
    """The loss of every update of a run."""
    records: Sequence[dict[str, Any]] = [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    losses = [(record["step"], record["loss"]) for record in records if "loss" in record]
    assert len(dict(losses)) == len(losses), "an update is written twice"
    return dict(losses)
