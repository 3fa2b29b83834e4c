"""``pivot make-model``: a model to try all commands on a CPU."""

from typing import Literal

from pydantic import Field

from ..core.errors import ConfigError
from ..flows import training
from .console import err, out, quoted
from .from_config import Flag, Form, from_config
from .options import Options, OutputField


class ModelOptions(Options):
    """Options of ``pivot make-model``."""

    kind: Literal["tiny", "smol"]
    """Kind of the model: tiny or smol."""
    folder: OutputField
    """Folder of the model; empty or missing."""
    data: str = ""
    """Store to fit the tokenizer of tiny on; by default a small one, built for it."""
    seed: int = Field(default=0, ge=0)
    """Seed of weights and lessons."""
    lessons: int = Field(default=80, ge=0)
    """Optimiser steps that teach tiny the format of replies; 0 for none."""


FLAGS = {"kind": Flag(argument="KIND"), "folder": Flag(argument="DIR")}


@from_config(Form("make", ModelOptions, FLAGS), file=False)
def make_model(options: ModelOptions) -> None:
    """Make a model, to try rollouts, training, evaluation and serving on a CPU. Nothing is downloaded.

    [bold]tiny[/] is a Qwen2.5-VL of 0.3 million weights from scratch, with a byte-level BPE of its own. It knows the
    format of replies, and nothing else.

    [bold]smol[/] is SmolLM2-135M-Instruct, a real pretrained model, with a vision tower from scratch (extra smol). It
    takes half a minute to make and one to five seconds a reply.

    [bold]Examples[/]

    pivot make-model tiny runs/tiny --data runs/first

    pivot make-model smol runs/smol
    """
    if options.kind == "smol" and (unused := options.model_fields_set & {"data", "lessons"}):
        raise ConfigError(f"--{min(unused)}: found it with smol, but tiny alone uses it; leave it out")
    made = training.make_model(
        options.kind,
        options.folder,
        options.data or None,
        seed=options.seed,
        lessons=options.lessons,
        report=lambda line: err.print(line, soft_wrap=True),
    )
    folder = options.folder
    loss = "" if made.loss is None else f", {made.loss:.3f} nats per token of a reply"
    out.print(
        f"{quoted(folder)}: {made.parameters / 1e6:.2f} M parameters, {made.vocabulary} tokens{loss}", soft_wrap=True
    )
    recipe = "--recipe tiny" if options.kind == "tiny" else "--recipe tiny --lora --lr 0.0002 --epochs 1"
    out.print(f"play: pivot build sokoban --policy transformers --model {quoted(folder)} --out DIR", soft_wrap=True)
    out.print(
        f"train: pivot train sft {options.data or 'STORE'} {recipe} --model {quoted(folder)} --out DIR", soft_wrap=True
    )
