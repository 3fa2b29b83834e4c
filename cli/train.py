"""``pivot train sft``: an Analyzer from a dataset (Stage I)."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..core.errors import PivotError
from ..flows import training
from ..training.analyzer_sft.config import SftConfig
from ..training.checkpoint import CHECK_PICTURE, FINAL, LOSS_PICTURE
from ..training.config import RECIPES, recipe_fields, recipes
from .console import err, out, show_table, styled
from .from_config import Flag, Form, from_config
from .opening import opening
from .values import Values

if TYPE_CHECKING:
    from ..training.analyzer_sft.run import Prepared, SftResult
    from ..training.memory import Estimate
    from ..training.policy_rl.loop import RlResult

train = typer.Typer(no_args_is_help=True)


def recipe_flag(folder: Path) -> Flag:
    """Return the option of a recipe; the shipped ones are in ``folder``."""
    text = f"Recipe with settings: a shipped one ({', '.join(recipes(folder))}), or a file."
    return Flag(metavar="NAME|FILE", help=text)


PRECISION = Flag(switches={"--bf16": "bf16", "--fp32": "fp32"})
SFT_FLAGS = {
    "dataset": Flag(argument="DATASET"),
    "configs": Flag("--env", metavar="ENV"),
    "recipe": recipe_flag(RECIPES),
    "lora": Flag(off="--full"),
    "precision": PRECISION,
    "resume": Flag(off="-"),
    "check_only": Flag(off="-"),
    "dry_run": Flag(off="-"),
}


class SftForm(Form[SftConfig]):
    """The options of :class:`.SftConfig`; a recipe gives the values that neither flags nor a file set."""

    def resolve(self, values: Values) -> SftConfig:
        """Check the values; see the base class."""
        put_recipe(values, RECIPES)
        return super().resolve(values)


def put_recipe(values: Values, folder: Path) -> None:
    """Put the settings of the recipe below the values that flags and file set; shipped ones are in ``folder``."""
    recipe = values.get(("recipe",))
    if recipe:
        fields = {key: value for key, value in recipe_fields(recipe, folder).items() if key not in values.data}
        values.put_all(fields, f"recipe {recipe}")


SFT = SftForm("sft", SftConfig, SFT_FLAGS)


@train.command()
@opening
@from_config(SFT, old_config="sft__configs")
def sft(config: SftConfig) -> None:
    """Train an Analyzer: from a collage and a log to the pivot step, the failure mode and guidance.

    Every record is checked first. Resume an interrupted run with --resume: the result is the same
    as without the interruption.

    [bold]Examples[/]

    pivot train sft runs/first --model Qwen/Qwen2.5-VL-3B-Instruct --env sokoban --out runs/analyzer

    pivot train sft runs/first --model Qwen/Qwen2.5-VL-3B-Instruct --check-only

    pivot train sft runs/first --recipe qwen2.5-vl-3b --dry-run

    torchrun --nproc-per-node 8 -m pivot train sft runs/first --recipe qwen2.5-vl-3b --out runs/analyzer
    """
    main_process = True
    try:
        training.check_packages(training.SFT_PACKAGES)
        main_process = is_main()
        if main_process and not config.dry_run:
            err.print("loading the model and checking every record …")
        result = training.train_sft(config, report=log_line, on_checked=_show_check)
    except PivotError as error:
        if main_process:
            raise
        raise typer.Exit(error.status) from error  # the first process shows it
    if result.memory is not None:
        show_estimate(config.model, result.memory)
        out.print(
            f"{config.micro_batch} records of {config.max_length} tokens at a time, batch {config.batch}, "
            f"{config.epochs} epochs, lr {config.lr:g}; nothing was written",
            soft_wrap=True,
        )
    elif result.folder is not None and main_process:
        loss = "" if result.validation_loss is None else f", loss on held-out levels {result.validation_loss:.4g}"
        show_outcome(config.out, result, loss)
        out.print(f"the Analyzer is in {config.out}/{FINAL}; loss: {config.out}/{LOSS_PICTURE}", soft_wrap=True)


def is_main() -> bool:
    """Whether this process shows messages for all that train together."""
    from ..training.ranks import Ranks  # noqa: PLC0415 - imports PyTorch

    return Ranks.current().is_main


def show_outcome(folder: Path | None, result: "SftResult | RlResult", loss: str = "") -> None:
    """Show how many updates a run made, or that it was complete before."""
    done = "already complete" if result.already_complete else f"{result.updates} updates"
    out.print(f"{folder}: {done}{loss}", soft_wrap=True)


def log_line(line: str) -> None:
    """Show a line of a training log."""
    err.print(line, soft_wrap=True, markup=False)


def _show_check(prepared: "Prepared") -> None:
    rows = []
    for name, side in (("train", prepared.report.train), ("validation", prepared.report.validation)):
        mean = [
            round(count / side.records, 1) for count in (side.picture_tokens, side.prompt_tokens, side.target_tokens)
        ]
        counts = ", ".join(f"{env} {count}" for env, count in sorted(side.environments.items()))
        rows.append([name, side.records, *mean, side.longest, counts])
    header = ["split", "records", "picture", "prompt", "target", "longest", "environments"]
    show_table("Data check: mean tokens per record", header, rows)
    side, plan = prepared.report.train, prepared.plan
    out.print(f"longest training record: episode {side.longest_id}, {side.longest} tokens", soft_wrap=True)
    if side.reduced:
        out.print(
            f"{side.reduced} pictures are scaled down by the model's processor: details may be lost", soft_wrap=True
        )
    out.print(
        f"{plan.steps} updates: {plan.epochs} epochs of {plan.steps_per_epoch}, {plan.left_out} records per epoch left "
        "out because they fill no batch",
        soft_wrap=True,
    )
    example = prepared.report.example
    out.print(f"supervised in episode {example.episode_id}:", soft_wrap=True)
    out.print(styled(example.target), soft_wrap=True)
    if prepared.config.out is not None:
        out.print(f"a record as the model sees it: {prepared.config.out / CHECK_PICTURE}", soft_wrap=True)


def show_estimate(model: str, made: "Estimate") -> None:
    """Show the memory of one process by part."""
    rows = [[name, f"{size / 2**30:.2f} GiB"] for name, size in made.parts.items()]
    total = ["sum", f"{made.total / 2**30:.2f} GiB"]
    show_table(f"Memory of one process: {model}", ["part", "estimate"], [*rows, total])
    parameters = f"{made.parameters / 1e6:,.1f} M parameters, {made.trained / 1e6:,.1f} M of them trained"
    out.print(parameters, soft_wrap=True)
