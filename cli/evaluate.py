"""``pivot evaluate``: accuracy of an Analyzer or of baselines that read the log alone, and success of a policy."""

from pathlib import Path

from ..flows import training
from ..training.evaluation.config import (
    POLICY_RESULT,
    AnalyzerEvaluationConfig,
    BaselinesConfig,
    PolicyEvaluationConfig,
)
from ..training.evaluation.run import evaluate_analyzer, evaluate_baselines
from .benchmark import show_report
from .console import ProgressBars, out, show_table
from .from_config import Flag, Form, from_config
from .help_texts import App
from .model_flags import AskedForm
from .train import EnvForm, log_line

evaluation = App()


PANELS = {
    "Records": ("data", "env", "side", "pictures", "full_length", "limit", "shots"),
    "Model": ("backend", "revision", "temperature", "max_tokens", "batch_size"),
    "Model server": ("service",),
    "Report": ("out", "name", "learned"),
}


ANALYZER = AskedForm("analyzer", AnalyzerEvaluationConfig, {"model": Flag(argument="MODEL")}, PANELS)
BASELINES = Form(
    "baselines",
    BaselinesConfig,
    {"data": Flag(argument="DATASET")},
    {"Records": ("env", "side", "full_length", "limit"), "Report": ("out", "learned")},
)


@evaluation.store_command()
@from_config(ANALYZER)
def analyzer(config: AnalyzerEvaluationConfig) -> None:
    """Ask an Analyzer about held-out failures and score its answers, next to baselines that read the log alone.

    The model may be a run of [bold]pivot train sft[/], a checkpoint, a hub id, or a model behind an
    OpenAI-compatible server, zero-shot or with worked examples. Blanked or exchanged collages show whether it uses the
    images: compare the results with [bold]pivot benchmark table[/]. Run the same command again to resume.

    [bold]Examples[/]

    pivot evaluate analyzer runs/analyzer

    pivot evaluate analyzer runs/analyzer --pictures exchanged --out runs/exchanged

    pivot evaluate analyzer Qwen/Qwen2.5-VL-3B-Instruct --base-url http://localhost:8000/v1 --data runs/first
    --out runs/zero-shot
    """
    with ProgressBars() as bars:
        report = evaluate_analyzer(config, reporter=bars)
    show_report(report)


@evaluation.store_command()
@from_config(BASELINES)
def baselines(config: BaselinesConfig) -> None:
    """Measure baselines that read the log alone: an Analyzer that uses the images has to beat them.

    The most frequent answer, boosted trees, and in the puzzles generated levels that fit the log; fitted on one split,
    measured on the other.

    [bold]Examples[/]

    pivot evaluate baselines runs/first --out runs/log-alone

    pivot evaluate baselines runs/first --env frozenlake --full-length --out runs/log-alone
    """
    with ProgressBars() as bars:
        report = evaluate_baselines(config, reporter=bars)
    show_report(report)


POLICY = EnvForm("policy", PolicyEvaluationConfig, {"model": Flag(argument="DIR")}, skip=("settings",))


@evaluation.store_command()
@from_config(POLICY)
def policy(config: PolicyEvaluationConfig) -> None:
    """Play held-out levels as the Student alone and report how often it succeeds, without Analyzer and Teacher.

    Intervals are 95 % intervals over levels. The result is DIR/evaluation/policy.json.

    [bold]Examples[/]

    pivot evaluate policy runs/sokoban-mp

    pivot evaluate policy runs/sokoban-mp --checkpoint best

    pivot evaluate policy Qwen/Qwen2.5-VL-3B-Instruct --env sokoban --out runs/raw
    """
    result = training.evaluate_policy(config, report=log_line)
    row = result.row()
    shares = {"success": row["success"], **{f"success, {each}": value for each, value in row["by_set"].items()}}
    shares["return"] = row["return"]
    table = [[each, value["value"], value["low"], value["high"], value["records"]] for each, value in shares.items()]
    header = ["figure", "mean", "low", "high", "episodes"]
    show_table(f"{row['env']}: {result.levels} held-out levels", header, table)
    if result.trained_on:
        out.print(f"{result.trained_on} more were left out: the run was trained on them", soft_wrap=True)
    if row["errors"]:
        out.print(f"{row['errors']} episodes ended in an error and are in no figure", soft_wrap=True)
    folder = Path(config.model)
    out.print(f"written: {(config.out or folder) / POLICY_RESULT}", soft_wrap=True)
