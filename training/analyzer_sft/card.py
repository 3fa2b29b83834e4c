"""The model card of a checkpoint: what it is, what it was trained on, how, and how good it was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from .config import SftConfig
from .data_check import DataReport

TEMPLATE = Path(__file__).with_name("card_template.md")
_ELSEWHERE = ("dataset", "model", "configs", "shape", "report_to")
"""Settings that the card names in other places, or that say nothing about the weights."""


def model_card(
    config: SftConfig, digest: str, report: DataReport, results: Mapping[str, float], versions: Mapping[str, str]
) -> str:
    """Return the text of the card.

    Args:
        config: of the run.
        digest: of the dataset.
        report: of the data check.
        results: measured numbers by name.
        versions: of packages.
    """
    on_hub = "/" in config.model and not config.model.startswith(("/", "."))
    head: Any = ModelCardData(
        library_name="transformers",
        pipeline_tag="image-text-to-text",
        base_model=config.model if on_hub else None,
        tags=["pivot", "vision-language", "agents", "failure-localisation"],
    )
    side, settings = report.train, config.model_dump(mode="json")
    total = side.picture_tokens + side.prompt_tokens + side.target_tokens
    card = ModelCard.from_template(
        head,
        template_path=str(TEMPLATE),
        config=config,
        digest=digest,
        train=_counts(side.environments),
        validation=_counts(report.validation.environments),
        tokens=round(total / side.records),
        picture=round(side.picture_tokens / side.records),
        target=round(side.target_tokens / side.records),
        longest=side.longest,
        settings={name: value for name, value in settings.items() if name not in _ELSEWHERE and value is not None},
        results=results,
        versions=versions,
    )
    return str(card).rstrip() + "\n"


def _counts(environments: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {env}" for env, count in sorted(environments.items()))
