"""``pivot train rl``: a policy by GRPO with gated self-distillation (Stage II)."""

import inspect
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pydantic import BaseModel

from ..core.errors import ConfigError
from ..datasets.store.config import environment
from ..flows import training
from ..training.checkpoint import taught_vocabulary
from ..training.policy_rl.config import RECIPES, RlConfig
from ..training.policy_rl.hindsight.contexts import arm_of
from .console import err, out, quoted, show_table
from .from_config import Flag, Form, env_settings, from_config, key_and_value, parameter
from .opening import allow_typed_code
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
            allow_typed_code(values, env, ("settings",))
        return config


RL_FLAGS = {
    "opd": Flag("--lambda-opd"),
    "beta": Flag("--beta-opd"),
    "lora": Flag(off="--full"),
    "precision": PRECISION,
    "server_devices": Flag("--server-device"),
    "target_vocabulary": Flag(default="the names that Stage I trained the model on, else certificate"),
    "credit": Flag(default="none"),
    "resume": Flag(off="-"),
    "recipe": recipe_flag(RECIPES),
    "dry_run": Flag(off="-"),
}


class RlForm(Form[RlConfig]):
    """The options of :class:`.RlConfig`: one or more environments, each with settings and a weight."""

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        about = typer.Argument(metavar="ENV...", help="Environments to train on, such as sokoban.")
        yield parameter(f"{self.name}__env", list[str], about)
        yield from super().parameters()
        for name, kind, option, metavar, text in (
            ("named", list[str], "--env", "ENV", "Same as a further ENV. May be repeated."),
            (
                *("settings", list[str], "--set", "KEY=VALUE"),
                "Environment setting, as pivot settings ENV lists them; ENV.KEY=VALUE where there are several "
                "environments. May be repeated.",
            ),
            (
                *("weight", list[str], "--weight", "ENV=NUMBER"),
                "Tasks of an environment per update, in proportion to those of the others (default: the number of its "
                "tasks, or 1 if another has a weight). May be repeated.",
            ),
        ):
            yield parameter(f"{self.name}__{name}", kind, typer.Option(option, metavar=metavar, help=text))

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Put what the flags say over what is there; see the base class."""
        super().put_flags(arguments, values)
        typed = [*(arguments.get(f"{self.name}__env") or ()), *(arguments.get(f"{self.name}__named") or ())]
        names = list(dict.fromkeys(typed)) or self._names(values)
        if typed:
            _put_names(names, values)
        several, inside = len(names) > 1, bool(values.get(("environments",)))
        for text in arguments.get(f"{self.name}__settings") or ():
            name = text.partition("=")[0].partition(".")[0] if several or not names else names[0]
            if several and name not in names:
                raise ConfigError(
                    f"--set {text}: found {name!r}, expected ENV.KEY=VALUE, ENV one of: {', '.join(names)}"
                )
            for key, value in env_settings(name, [text]).items():
                at = ("environments", name, "settings") if inside else ("settings",)
                values.put((*at, key), value, f"--set {name}.{key}" if several else f"--set {key}")
        for text in arguments.get(f"{self.name}__weight") or ():
            name, weight = key_and_value("--weight", text, shape="ENV=NUMBER")
            if not several or name not in names:
                raise ConfigError(
                    f"--weight {text}: found {name!r}, expected one of several environments of the run "
                    f"({', '.join(names)})"
                )
            values.put(("environments", name, "weight"), weight, f"--weight {name}")

    @staticmethod
    def _names(values: Values) -> list[str]:
        """Return the environments that are set so far."""
        several, env = values.get(("environments",)), values.get(("env",))
        return list(several) if isinstance(several, dict) and several else [env] if env else []

    def resolve(self, values: Values) -> RlConfig:
        """Check the values; failure modes have the names of Stage I by default, and a recipe gives what is not set."""
        put_recipe(values, RECIPES)
        names = self._names(values)
        if not names:
            raise ConfigError("missing argument 'ENV': environment to train on, such as sokoban")
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
        config = super().resolve(values)
        for name in names:
            at = ("environments", name, "settings") if values.get(("environments",)) else ("settings",)
            values.read(environment(name).config_type, at, f"setting {name}.")
            allow_typed_code(values, name, at)
        return config


def _put_names(names: Sequence[str], values: Values) -> None:
    """Put the environments of the command line over those of a file, whose settings of them stay."""
    before = values.get(("environments",)) or {}
    if len(names) == 1 and not before:
        values.put(("env",), names[0], "ENV")
        return
    env, settings = values.data.pop("env", ""), values.data.pop("settings", {})
    if env and not before:
        before = {env: {"settings": settings}}
    values.data["environments"] = {name: before.get(name, {}) for name in names}


RL = RlForm("rl", RlConfig, RL_FLAGS, skip=("env", "settings", "environments"))


@from_config(RL)
def rl(config: RlConfig) -> None:
    """Train a policy on environments: GRPO, and a Teacher that scores every failure again with hindsight.

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

    pivot train rl sokoban frozenlake --model runs/analyzer/final --weight sokoban=2 --out runs/two

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
    each = [f"{env}/success" for env in config.environments]
    rows = [
        [name, result.last[name]]
        for name in ("success", *each, "return", "zero_variance", "kl")
        if result.last.get(name) is not None
    ]
    rows += [
        [f"{above}success, held-out levels", result.last[f"{above}validation"]["success"]["value"]]
        for above in ("", *(f"{env}/" for env in config.environments))
        if f"{above}validation" in result.last
    ]
    show_table("Last update", ["figure", "value"], rows)
    folder = quoted(config.out)
    out.print(f"the policy is in {config.out}/final; curves: {config.out}/curves.png", soft_wrap=True)
    for env in config.environments or [""]:
        named = f" --env {env} --out {quoted(f'{config.out}/of-{env}')}" if env else ""
        out.print(f"measure it: pivot evaluate policy {folder}{named}", soft_wrap=True)
    if 0 < config.keep_rollouts <= config.updates:
        from ..training.policy_rl.rollout_store import FOLDER  # noqa: PLC0415 - imports PyTorch

        rollouts = quoted(f"{config.out}/{FOLDER}")
        out.print(f"its rollouts: pivot stats {rollouts}; pivot peek {rollouts}", soft_wrap=True)


def _show_levels(prepared: "Prepared") -> None:
    config = prepared.config
    start = arm_of(config.arm).starts_from
    for each in prepared.members:
        counts = f"{len(each.levels.train)} levels, {len(each.levels.validation)} held out"
        share = f", {each.config.prompts} of the {config.prompts} levels per update" if config.environments else ""
        err.print(f"{each.env}, arm {config.arm} (meant to start from {start}): {counts}{share}", soft_wrap=True)
