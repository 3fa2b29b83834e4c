"""Work of processes that train together: runs of Stage II, each in a fork, and any command.

The runs are made in a folder with two models, ``start`` and ``other`` (of the other family); the arguments are a free
port for each run. Left there are the runs, and how they ended in each process: ``RANK.json``.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pivot import cli
from pivot.models.extras import need
from pivot.tests.training.lake import short, torch
from pivot.tests.training.victim import at_call, forked
from pivot.training.policy_rl import loop

need("accelerate", "train")  # once for all forks
transformers: Any = need("transformers", "train")
assert transformers.Qwen2_5_VLForConditionalGeneration
assert transformers.Qwen3VLForConditionalGeneration
ALIKE = {"arm": "oracle", "updates": 2, "lr": 1e-5, "prompts": 2, "minibatch": 5, "micro_batch_tokens": 70}
"""Settings of the runs that are to give the same parameters: three micro-batches a minibatch, of two turns at most."""
COMMAND = (
    "train rl frozenlake --set size=2 --set horizon=2 --set cell=16 --model other --arm mp --levels 12 "
    "--prompts 2 --rollouts 4 --max-tokens 8 --minibatch 6 --micro-batch-tokens 100 --lr 1e-3 --updates 2 "
    "--save-every 1 --validation-episodes 4 --validate-every 1 --generate 16"
)


def alike() -> None:
    """Make the run that is to give the parameters of one process."""
    loop.train(loop.prepare(short("start", **ALIKE)), Path("two"))


def pivot(*words: str | Path) -> None:
    """Run a command."""
    sys.argv = ["pivot", *map(str, words)]
    try:
        cli.main()
    except SystemExit as end:
        if end.code:
            raise


def command(name: str, *more: str) -> None:
    """Run ``pivot train rl``; the Analyzer's replies are short."""
    pivot(*COMMAND.split(), "--analyzer-tokens", "4", "--out", name, *more)


def killed() -> None:
    """Let the last process die in the second update."""
    if os.environ["RANK"] == "1":
        at_call(torch.nn.utils, "clip_grad_norm_", 4)()
    command("killed")


def main(ports: list[str]) -> None:
    """Make all runs."""
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # pyright: ignore[reportPrivateImportUsage]
    runs: dict[str, Callable[[], None]] = {
        "two": alike,
        "undisturbed": lambda: command("undisturbed"),
        "killed": killed,
        "resumed": lambda: command("killed", "--resume"),
    }
    statuses: dict[str, int] = {}
    for (name, run), port in zip(runs.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = port

        def report_one(run: Callable[[], None] = run) -> None:
            try:
                run()
            except BaseException:
                traceback.print_exc()
                raise

        statuses[name] = forked(report_one)
        if name == "killed" and os.environ["RANK"] == "0":
            shutil.copytree("killed", "alone")
    Path(f"{os.environ['RANK']}.json").write_text(json.dumps(statuses), encoding="utf-8")
