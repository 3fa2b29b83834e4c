"""``pivot train``: an Analyzer from a dataset (Stage I), and a policy by GRPO with hindsight (Stage II)."""

import inspect
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pydantic import BaseModel

from ..core.errors import PivotError
from ..datasets.store.config import environment
from ..flows import training
from ..training import config as shared
from ..training.analyzer_sft.config import SftConfig
from ..training.checkpoint import FINAL, LOSS_PICTURE, taught_vocabulary
from ..training.config import recipe_fields, recipes
from ..training.policy_rl.config import RECIPES as RL_RECIPES
from ..training.policy_rl.config import RlConfig
from ..training.policy_rl.hindsight.contexts import arm_of
from .console import err, out, quoted, show_table, styled
from .from_config import Flag, Form, env_settings, from_config, parameter
from .help_texts import App
from .opening import allow_typed_code
from .values import Values

if TYPE_CHECKING:
    from ..training.analyzer_sft.run import Prepared, SftResult
    from ..training.memory import Estimate
    from ..training.policy_rl import loop

train = App()


def recipe_flag(folder: Path) -> Flag:
    """Return the option of a recipe; the shipped ones are in ``folder``."""
    text = f"Recipe with settings: a shipped one ({', '.join(recipes(folder))}), or a file."
    return Flag(metavar="NAME|FILE", help=text)


SFT_FLAGS = {
    "dataset": Flag(argument="DATASET"),
    "configs": Flag("--env", metavar="ENV"),
    "recipe": recipe_flag(shared.RECIPES),
    "lora": Flag(off="--full"),
}


class SftForm(Form[SftConfig]):
    """The options of :class:`.SftConfig`; a recipe gives the values that neither flags nor a file set."""

    def resolve(self, values: Values) -> SftConfig:
        """Check the values; see the base class."""
        put_recipe(values, shared.RECIPES)
        return super().resolve(values)


def put_recipe(values: Values, folder: Path) -> None:
    """Put the settings of the recipe below the values that flags and file set; shipped ones are in ``folder``."""
    recipe = values.get(("recipe",))
    if recipe:
        fields = {key: value for key, value in recipe_fields(recipe, folder).items() if key not in values.data}
        values.put_all(fields, f"recipe {recipe}")


SFT = SftForm("sft", SftConfig, SFT_FLAGS)


@train.store_command()
@from_config(SFT)
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
        raise typer.Exit(error.status) from error  # the first process shows the error
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
    """Return whether this process shows the messages of all training processes."""
    from ..training.ranks import Ranks  # noqa: PLC0415 - imports PyTorch

    return Ranks.current().is_main


def show_outcome(folder: Path | None, result: "SftResult | loop.RlResult", loss: str = "") -> None:
    """Show the number of updates of a run, or that it was complete before."""
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
    out.print(f"prompt of episode {example.episode_id}, as the model reads it:", soft_wrap=True)
    out.print(styled(example.prompt), soft_wrap=True)
    out.print(f"supervised in episode {example.episode_id}:", soft_wrap=True)
    out.print(styled(example.target), soft_wrap=True)


def show_estimate(model: str, made: "Estimate") -> None:
    """Show the memory of one process by part."""
    rows = [[name, f"{size / 2**30:.2f} GiB"] for name, size in made.parts.items()]
    total = ["sum", f"{made.total / 2**30:.2f} GiB"]
    show_table(f"Memory of one process: {model}", ["part", "estimate"], [*rows, total])
    parameters = f"{made.parameters / 1e6:,.1f} M parameters, {made.trained / 1e6:,.1f} M of them trained"
    out.print(parameters, soft_wrap=True)


AnyConfig = TypeVar("AnyConfig", bound=BaseModel)


class EnvForm(Form[AnyConfig]):
    """Options of a config with one environment, whose settings ``--set`` gives as KEY=VALUE or ENV.KEY=VALUE."""

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        yield from super().parameters()
        text = "Environment setting, as pivot doctor ENV lists them. May be repeated."
        yield parameter(f"{self.name}__settings", list[str], typer.Option("--set", metavar="KEY=VALUE", help=text))

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Override values by flags; see the base class."""
        super().put_flags(arguments, values)
        texts = arguments.get(f"{self.name}__settings") or ()
        env = values.get(("env",))
        for text in texts:
            name = env or text.partition("=")[0].partition(".")[0]
            for key, value in env_settings(name, [text]).items():
                values.put(("settings", key), value, f"--set {key}")

    def resolve(self, values: Values) -> AnyConfig:
        """Check the values, settings of the environment included; see the base class."""
        config = super().resolve(values)
        if (env := values.get(("env",))) is not None:
            values.read(environment(env).config_type, ("settings",), f"setting {env}.")
            allow_typed_code(values, env, ("settings",))
        return config


RL_FLAGS = {
    "env": Flag(argument="ENV"),
    "opd": Flag("--lambda-opd"),
    "beta": Flag("--beta-opd"),
    "lora": Flag(off="--full"),
    "target_vocabulary": Flag(default="the names that Stage I trained the model on, else certificate"),
    "credit": Flag(default="none"),
    "recipe": recipe_flag(RL_RECIPES),
}


class RlForm(EnvForm[RlConfig]):
    """Options of :class:`.RlConfig`."""

    def resolve(self, values: Values) -> RlConfig:
        """Check the values; failure modes have the names of Stage I by default, and a recipe gives what is not set."""
        put_recipe(values, RL_RECIPES)
        for name in ("updates", "prompts"):
            if values.get((name,)) == "0":  # 0 stands for the paper's number
                values.put((name,), 0, f"--{name}")
        model = values.get(("model",))
        if (
            values.origin(("target_vocabulary",)) is None
            and isinstance(model, str)
            and (vocabulary := taught_vocabulary(model))
        ):
            values.put(("target_vocabulary",), vocabulary, "--target-vocabulary")
        return super().resolve(values)


RL = RlForm("rl", RlConfig, RL_FLAGS, skip=("settings",))


@train.store_command()
@from_config(RL)
def rl(config: RlConfig) -> None:
    """Train a policy on an environment: GRPO, and a Teacher that scores every failure again with hindsight.

    Each update plays tasks, asks the Analyzer (the same model) for the pivot step of every failure, scores the tokens
    of the failure again under a prompt with this hindsight, and makes an optimiser step. --arm chooses what the
    Teacher's prompt shows:

    - vanilla_grpo, sft_grpo: no Teacher, GRPO alone; meant to start from an instruct or a Stage I checkpoint
    - p: the panel
    - m: the failure mode
    - mp: panel, mode and pivot step (the paper's default)
    - mpr: panel, mode, pivot step and guidance
    - oracle: as mp, with the solver's label instead of the Analyzer's: an upper bound
    - mp_random_r: as mpr, with panel and step of a random other step
    - sdar: a skill that a frozen larger model writes; it scores every episode, failed or not
    - witness, dpo_pivot: no Teacher; extensions that learn from a certified action of each failure
    - empty: nothing, a control
    - analyzer_only: no Teacher; the Analyzer runs, a control

    Resume an interrupted run with --resume: the result is the same as without the interruption.

    [bold]Examples[/]

    pivot train rl sokoban --model runs/analyzer/final --arm mp --out runs/sokoban-mp

    pivot train rl frozenlake --model Qwen/Qwen2.5-VL-3B-Instruct --arm vanilla_grpo --out runs/lake

    pivot train rl sokoban --model runs/analyzer/final --recipe qwen2.5-vl-3b --dry-run

    torchrun --nproc-per-node 8 -m pivot train rl sokoban --model runs/analyzer/final --out runs/sokoban-mp
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the run ends its servers, as after Ctrl-C
    result = training.train_rl(config, report=log_line, on_prepared=_show_levels)
    if not is_main():
        return
    if result.memory is not None:
        show_estimate(config.model, result.memory)
        out.print(
            f"micro-batches of {config.micro_batch_tokens} tokens, {config.generate} replies together; nothing was "
            "written",
            soft_wrap=True,
        )
        return
    show_outcome(config.out, result)
    rows = [
        [name, result.last[name]]
        for name in ("success", "return", "zero_variance", "kl")
        if result.last.get(name) is not None
    ]
    if "validation" in result.last:
        rows.append(["success, held-out levels", result.last["validation"]["success"]["value"]])
    show_table("Last update", ["figure", "value"], rows)
    folder = quoted(config.out)
    out.print(f"the policy is in {config.out}/final; curves: {config.out}/curves.png", soft_wrap=True)
    out.print(f"measure it: pivot evaluate policy {folder}", soft_wrap=True)
    if 0 < config.keep_rollouts <= config.updates:
        from ..training.policy_rl.rollout_store import FOLDER  # noqa: PLC0415 - imports PyTorch

        rollouts = quoted(f"{config.out}/{FOLDER}")
        out.print(f"its rollouts: pivot stats {rollouts}; pivot peek {rollouts}", soft_wrap=True)


def _show_levels(prepared: "loop.Prepared") -> None:
    config = prepared.config
    start = arm_of(config.arm).starts_from
    counts = f"{len(prepared.levels.train)} levels, {len(prepared.levels.validation)} held out"
    err.print(f"{config.env}, arm {config.arm} (meant to start from {start}): {counts}", soft_wrap=True)
