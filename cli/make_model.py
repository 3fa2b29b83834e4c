"""``pivot make-model``: a model for walks on a CPU."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..flows import training
from .console import err, out, quoted
from .options import option


class Kind(StrEnum):
    """A kind of model."""

    tiny = "tiny"
    smol = "smol"


def make_model(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="tiny or smol.", show_default=False)],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the model; empty or missing.")],
    data: Annotated[
        str, option("Store to fit the tokenizer of tiny on (default: a small one, built for it).", "--data")
    ] = "",
    seed: Annotated[int, option("Seed of weights and lessons.", "--seed", min=0)] = 0,
    lessons: Annotated[
        int, option("Optimiser steps that teach tiny the format of replies; 0 for none.", "--lessons", min=0)
    ] = 80,
) -> None:
    """Make a model, to try rollouts, training, evaluation and serving on a CPU. Nothing is downloaded.

    [bold]tiny[/] is a Qwen2.5-VL of 0.3 million weights from scratch, with a byte-level BPE of its own. It knows the
    format of replies, and nothing else.

    [bold]smol[/] is SmolLM2-135M-Instruct, a real pretrained model, with a vision tower from scratch (extra smol). It
    takes half a minute to make and one to five seconds a reply.

    [bold]Examples[/]

    pivot make-model tiny runs/tiny --data runs/first

    pivot make-model smol runs/smol
    """
    made = training.make_model(
        kind.value,
        folder,
        data or None,
        seed=seed,
        lessons=lessons,
        report=lambda line: err.print(line, soft_wrap=True),
    )
    loss = "" if made.loss is None else f", {made.loss:.3f} nats per token of a reply"
    out.print(
        f"{quoted(folder)}: {made.parameters / 1e6:.2f} M parameters, {made.vocabulary} tokens{loss}", soft_wrap=True
    )
    recipe = "--recipe tiny" if kind is Kind.tiny else "--recipe tiny --lora --lr 0.0002 --epochs 1"
    out.print(f"play: pivot build sokoban --policy transformers --model {quoted(folder)} --out DIR", soft_wrap=True)
    out.print(f"train: pivot train sft {data or 'STORE'} {recipe} --model {quoted(folder)} --out DIR", soft_wrap=True)
