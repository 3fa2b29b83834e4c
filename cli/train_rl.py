"""``pivot train rl``: a policy by GRPO with gated self-distillation (Stage II)."""

import inspect
import signal
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pydantic import BaseModel

from ..api import training as api
from ..datasets.config import environment
from ..training.policy_rl.config import RECIPES, RlConfig
from ..training.policy_rl.hindsight.contexts import arm_of
from ..training.wording import taught_vocabulary
from .console import err, out, quoted, show_table
from .from_config import Flag, Form, env_settings, from_config, parameter
from .train import PRECISION, is_main, log_line, put_recipe, recipe_flag, show_estimate, show_outcome
from .values import Values

if TYPE_CHECKING:
    from ..training.policy_rl.loop import Prepared

AnyConfig = TypeVar("AnyConfig", bound=BaseModel)


class EnvForm(Form[AnyConfig]):
    """Options of a config with one environment, whose settings ``--set`` gives as KEY=VALUE or ENV.KEY=VALUE."""

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        yield from super().parameters()
        text = "Environment setting, as pivot settings ENV lists them. May be repeated."
        yield parameter(f"{self.name}__settings", list[str], typer.Option("--set", metavar="KEY=VALUE", help=text))

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Put what the flags say over what is there; see the base class."""
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
        return config


RL_FLAGS = {
    "env": Flag(argument="ENV"),
    "opd": Flag("--lambda-opd"),
    "beta": Flag("--beta-opd"),
    "lora": Flag(off="--full"),
    "precision": PRECISION,
    "server_devices": Flag("--server-device"),
    "target_vocabulary": Flag(default="the names that Stage I trained the model on, else certificate"),
    "updates": Flag(default="the paper's 250; sokoban 350"),
    "prompts": Flag(default="the paper's 16; navigation 8"),
    "levels": Flag(default="the paper's number"),
    "credit": Flag(default="none"),
    "shard": Flag(off="--no-shard"),
    "resume": Flag(off="-"),
    "recipe": recipe_flag(RECIPES),
    "dry_run": Flag(off="-"),
    "clip_high": Flag(default="--clip"),
}


class RlForm(EnvForm[RlConfig]):
    """The options of :class:`.RlConfig`."""

    def resolve(self, values: Values) -> RlConfig:
        """Check the values; failure modes have the names of Stage I by default, and a recipe gives what is not set."""
        put_recipe(values, RECIPES)
        for name in ("updates", "prompts"):
            if values.get((name,)) == "0":  # the paper's number, as in Python
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


@from_config(RL)
def rl(config: RlConfig) -> None:
    """Train a policy on an environment: GRPO, and a Teacher that scores every failure again with hindsight.

    Each update plays levels, asks the Analyzer (the same model) for the pivot step of every failure, scores the
    tokens of the failure again under a prompt with this hindsight, and makes an optimiser step. The arm chooses it:

    vanilla_grpo and sft_grpo have none, p the panel, m the mode, mp panel, mode and step (the paper's default), mpr
    guidance, too; oracle asks the solver instead of the Analyzer, mp_random_r shows a random step, sdar has a frozen
    larger Teacher, empty and analyzer_only are controls. witness and dpo_pivot are
    extensions that learn from the solver's plan.

    Resume a killed run with --resume: it makes the updates of a run without the kill.

    [bold]Examples[/]

    pivot train rl sokoban --model runs/analyzer/final --arm mp --out runs/sokoban-mp

    pivot train rl frozenlake --model Qwen/Qwen2.5-VL-3B-Instruct --arm vanilla_grpo --out runs/lake

    pivot train rl sokoban --model runs/analyzer/final --recipe qwen2.5-vl-3b --dry-run

    torchrun --nproc-per-node 8 -m pivot train rl sokoban --model runs/analyzer/final --out runs/sokoban-mp --shard
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the run ends its servers, as after Ctrl-C
    result = api.train_rl(config, report=log_line, on_prepared=_show_levels)
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


def _show_levels(prepared: "Prepared") -> None:
    config = prepared.config
    counts = f"{len(prepared.levels.train)} levels, {len(prepared.levels.validation)} held out"
    start = arm_of(config.arm).starts_from
    err.print(f"{config.env}, arm {config.arm} (meant to start from {start}): {counts}", soft_wrap=True)
