"""``pivot make-tiny-model``: a model for walks on a CPU."""

from pathlib import Path
from typing import Annotated

import typer

from ..flows import training
from .console import err, out, quoted
from .options import option


def make_tiny_model(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the model; empty or missing.")],
    data: Annotated[str, option("Store to fit the tokenizer on (default: a small one, built for it).", "--data")] = "",
    seed: Annotated[int, option("Seed of weights and lessons.", "--seed", min=0)] = 0,
    lessons: Annotated[
        int,
        option("Optimiser steps on the format of replies; 0 leaves the weights random.", "--lessons", min=0),
    ] = 80,
) -> None:
    """Make a tiny Qwen2.5-VL from scratch, to try training, evaluation and serving on a CPU within minutes.

    It has a byte-level BPE of its own and knows the format of replies, and nothing else. Nothing is downloaded.

    [bold]Examples[/]

    pivot make-tiny-model runs/tiny

    pivot make-tiny-model runs/tiny --data runs/first
    """
    made = training.make_tiny_model(
        folder, data or None, seed=seed, lessons=lessons, report=lambda line: err.print(line, soft_wrap=True)
    )
    loss = "" if made.loss is None else f", {made.loss:.3f} nats per token of a reply"
    out.print(
        f"{quoted(folder)}: {made.parameters / 1e6:.2f} M parameters, {made.vocabulary} tokens{loss}", soft_wrap=True
    )
    name = data or "STORE"
    out.print(f"train it: pivot train sft {name} --recipe tiny --model {quoted(folder)} --out DIR", soft_wrap=True)
