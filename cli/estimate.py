"""``pivot estimate``: labels of an Analyzer for imported episodes without a state."""

from pathlib import Path
from typing import Any

from pydantic import Field

from ..api import training as api
from .console import ProgressBars, out
from .from_config import Flag, Form, from_config
from .options import Options


class EstimateOptions(Options):
    """Options of ``pivot estimate``."""

    folder: Path
    """Folder of episodes without a state that pivot import wrote."""
    model: str
    """Analyzer: a run of pivot train sft, a checkpoint folder, a hub id, or a served model."""
    backend: str = ""
    """Model backend: by default openai with a server address, else transformers."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Setting of the model, such as temperature or max_tokens."""
    service: dict[str, Any] = Field(default_factory=dict)
    """Setting of the model server, such as base_url=http://localhost:8000/v1."""


ESTIMATE = Form(
    "estimate",
    EstimateOptions,
    {"folder": Flag(argument="DIR"), "options": Flag(name="--option"), "service": Flag(name="--service")},
)


@from_config(ESTIMATE)
def estimate(options: EstimateOptions) -> None:
    """Ask an Analyzer where imported failures without a state were lost.

    Its answers go to DIR/labels.jsonl, marked as estimated, with the probability that it gives to its step. They are
    not certificates, and no store or split contains them.

    [bold]Examples[/]

    pivot estimate runs/mine-stateless --model runs/analyzer

    pivot estimate runs/mine-stateless --model my-vlm --service base_url=http://localhost:8000/v1
    """
    with ProgressBars() as bars:
        result = api.estimate(
            options.folder,
            options.model,
            backend=options.backend,
            options=options.options,
            service=options.service,
            reporter=bars,
        )
    out.print(
        f"{result.estimated} failures estimated, {result.unreadable} replies could not be read, {result.proved} have a "
        f"label from distances, {result.left_out} did not fail, end openly or lack pictures",
        soft_wrap=True,
    )
