"""``pivot train``: an Analyzer from a dataset (Stage I)."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..errors import PivotError, TrainingError
from ..models.extras import install_line, look_for
from ..storage import open_storage
from ..training.analyzer_sft.config import SftConfig, make_sft_config
from ..training.config import recipe_fields, recipes
from .console import err, out, show_table, styled
from .links import with_links
from .options import option

train = typer.Typer(
    name="train", help=f"Train models from a dataset. Needs: {escape(install_line('train'))}", no_args_is_help=True
)

_HOW = "How it trains"
_CHECKS = "Checks"


@train.command()
@with_links
def sft(
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="A store, a dataset folder, or a hub id.")
    ] = None,
    model: Annotated[str | None, option("Model to start from: a folder, or a hub id.", "--model")] = None,
    out_dir: Annotated[
        Path | None, option("Folder of the run: checkpoints/, final/, run.json, loss.png.", "--out")
    ] = None,
    recipe: Annotated[
        str | None, option(f"Take settings from a file, or from a shipped one: {', '.join(recipes())}.", "--recipe")
    ] = None,
    configs: Annotated[
        list[str] | None,
        option(
            "Environment to train on; again for more, or all (default). The paper trains one a checkpoint.", "--config"
        ),
    ] = None,
    revision: Annotated[str | None, option("Revision of the model on the hub.", "--revision")] = None,
    epochs: Annotated[int | None, option("Passes over the training side (default 3).", "--epochs", panel=_HOW)] = None,
    lr: Annotated[float | None, option("Peak learning rate (default 2e-6).", "--lr", panel=_HOW)] = None,
    batch: Annotated[
        int | None, option("Records an update, over all processes (default 8).", "--batch", panel=_HOW)
    ] = None,
    micro_batch: Annotated[
        int | None,
        option("Records a process holds at a time (default 1); changes no result.", "--micro-batch", panel=_HOW),
    ] = None,
    max_length: Annotated[
        int | None,
        option(
            "Longest record in tokens (default 8192); a longer one is refused, never cut.", "--max-length", panel=_HOW
        ),
    ] = None,
    lora: Annotated[
        bool | None, option("Train adapters of the language model instead of all weights.", "--lora/--full", panel=_HOW)
    ] = None,
    bf16: Annotated[
        bool | None,
        option(
            "Compute in bfloat16 (default on a GPU) or float32; weights are kept in float32.",
            "--bf16/--fp32",
            panel=_HOW,
        ),
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None,
        option("Less memory for a third more time (default on).", "--checkpointing/--no-checkpointing", panel=_HOW),
    ] = None,
    seed: Annotated[
        int | None, option("Seed of the order of the records, and of adapters.", "--seed", panel=_HOW)
    ] = None,
    streaming: Annotated[
        bool | None, option("Read the files with every epoch instead of holding them.", "--streaming", panel=_HOW)
    ] = None,
    target_vocabulary: Annotated[
        str | None,
        option(
            "Words for failure modes: certificate, or paper (default: the dataset's).",
            "--target-vocabulary",
            panel=_HOW,
        ),
    ] = None,
    save_every: Annotated[
        int | None, option("Updates between checkpoints (default: one an epoch).", "--save-every", panel=_HOW)
    ] = None,
    report_to: Annotated[
        list[str] | None, option("Tracker, such as wandb or tensorboard; again for more.", "--report-to", panel=_HOW)
    ] = None,
    resume: Annotated[bool, option("Go on from the last whole checkpoint of --out.", "--resume")] = False,
    check_only: Annotated[
        bool, option("Check every record, show what is taught, and stop.", "--check-only", panel=_CHECKS)
    ] = False,
    dry_run: Annotated[
        bool, option("Estimate memory and show the plan, and stop.", "--dry-run", panel=_CHECKS)
    ] = False,
) -> None:
    """Train an Analyzer: from a collage and a log to the pivot step, the failure mode and guidance.

    Every record is checked first. A killed run goes on with --resume, with the loss it would have had.

    [bold]Examples[/]

    pivot train sft runs/first --model Qwen/Qwen2.5-VL-3B-Instruct --config sokoban --out runs/analyzer

    pivot train sft runs/first --model Qwen/Qwen2.5-VL-3B-Instruct --check-only

    pivot train sft runs/first --recipe qwen2.5-vl-3b --dry-run

    torchrun --nproc-per-node 8 -m pivot train sft runs/first --recipe qwen2.5-vl-3b --out runs/analyzer
    """
    given: dict[str, Any] = {
        "dataset": dataset,
        "model": model,
        "configs": tuple(configs) if configs else None,
        "revision": revision,
        "epochs": epochs,
        "lr": lr,
        "batch": batch,
        "micro_batch": micro_batch,
        "max_length": max_length,
        "lora": lora,
        "precision": None if bf16 is None else "bf16" if bf16 else "fp32",
        "gradient_checkpointing": gradient_checkpointing,
        "seed": seed,
        "streaming": streaming,
        "target_vocabulary": target_vocabulary,
        "save_every": save_every,
        "report_to": tuple(report_to) if report_to else None,
    }
    fields = recipe_fields(recipe) if recipe else {}
    fields |= {name: value for name, value in given.items() if value is not None}
    for name, how in (("dataset", "give a store or dataset folder first"), ("model", "give --model, or a --recipe")):
        if not fields.get(name):
            raise TrainingError(f"no {name} given, expected one; {how}")
    config = make_sft_config(fields)
    for package in ("torch", "transformers", "trl", "accelerate", "peft", "matplotlib"):
        look_for(package, "train")
    if dry_run:
        _show_estimate(config)
        return
    if out_dir is None and not check_only:
        raise TrainingError("no folder given, expected one for checkpoints and results; say where with --out DIR")
    _train(config, out_dir, resume=resume, check_only=check_only)


def _train(config: SftConfig, out_dir: Path | None, *, resume: bool, check_only: bool) -> None:
    # Imported here: PyTorch and its friends take seconds.
    from ..images import encode_png  # noqa: PLC0415
    from ..training.analyzer_sft import run as stage_one  # noqa: PLC0415
    from ..training.checkpoint import CHECK_PICTURE, FINAL  # noqa: PLC0415
    from ..training.ranks import Ranks  # noqa: PLC0415

    ranks = Ranks.current()
    main_process = ranks.is_main
    if main_process:
        err.print("loading the model and checking every record …")
    try:
        prepared = stage_one.prepare(config)
        if out_dir is not None and not check_only:
            storage = open_storage(out_dir)
            ranks.by_one(lambda: stage_one.check_folder(storage, prepared, resume=resume))
    except PivotError as error:
        if main_process:
            raise
        raise typer.Exit(error.status) from error  # the first process tells
    if main_process:
        _show_check(prepared)
        if out_dir is not None:
            open_storage(out_dir).write_bytes(CHECK_PICTURE, encode_png(prepared.report.example.drawing()))
            out.print(f"one record as the model is given it: {out_dir / CHECK_PICTURE}", soft_wrap=True)
    if check_only or out_dir is None:
        return
    result = stage_one.train(prepared, out_dir, resume=resume, report=_tell if main_process else _keep_quiet)
    if not main_process:
        return
    done = "already complete" if result.already_complete else f"{result.updates} updates"
    loss = "" if result.validation_loss is None else f", loss on held-out levels {result.validation_loss:.4g}"
    out.print(f"{out_dir}: {done}{loss}", soft_wrap=True)
    out.print(f"the Analyzer is in {out_dir / FINAL}; loss: {out_dir / 'loss.png'}", soft_wrap=True)


def _tell(line: str) -> None:
    err.print(line, soft_wrap=True, markup=False)


def _keep_quiet(line: str) -> None:
    """Say nothing: another process does."""


def _show_check(prepared: Any) -> None:
    rows = []
    for name, side in (("train", prepared.report.train), ("validation", prepared.report.validation)):
        mean = [
            round(count / side.records, 1) for count in (side.picture_tokens, side.prompt_tokens, side.target_tokens)
        ]
        counts = ", ".join(f"{env} {count}" for env, count in sorted(side.environments.items()))
        rows.append([name, side.records, *mean, side.longest, counts])
    header = ["side", "records", "picture", "prompt", "target", "longest", "environments"]
    show_table("Data check: tokens a record, on average", header, rows)
    side, plan = prepared.report.train, prepared.plan
    out.print(f"longest training record: episode {side.longest_id}, {side.longest} tokens", soft_wrap=True)
    if side.reduced:
        out.print(
            f"{side.reduced} pictures are scaled down by the model's processor: details may be lost", soft_wrap=True
        )
    out.print(
        f"{plan.steps} updates: {plan.epochs} epochs of {plan.steps_per_epoch}, {plan.left_out} records an epoch left "
        "out because they fill no batch",
        soft_wrap=True,
    )
    example = prepared.report.example
    out.print(f"supervised in episode {example.episode_id}:", soft_wrap=True)
    out.print(styled(example.target), soft_wrap=True)


def _show_estimate(config: SftConfig) -> None:
    from ..training.memory import estimate  # noqa: PLC0415 - imports PyTorch

    made = estimate(config)
    rows = [[name, f"{size / 2**30:.2f} GiB"] for name, size in made.parts.items()]
    show_table(
        f"Memory of one process: {config.model}",
        ["part", "estimate"],
        [*rows, ["sum", f"{made.total / 2**30:.2f} GiB"]],
    )
    out.print(
        f"{made.parameters / 1e6:,.1f} M parameters, {made.trained / 1e6:,.1f} M of them trained; "
        f"{config.micro_batch} records of "
        f"{config.max_length} tokens at a time, batch {config.batch}, {config.epochs} epochs, lr {config.lr:g}; "
        "nothing was written",
        soft_wrap=True,
    )
