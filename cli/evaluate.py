"""``pivot evaluate``: accuracy of an Analyzer, and of baselines that read the log alone."""

import typer

from ..training.evaluation.config import AnalyzerEvaluationConfig, BaselinesConfig
from ..training.evaluation.run import evaluate_analyzer, evaluate_baselines
from .asked_form import AskedForm
from .benchmark import show_report
from .console import ProgressBars
from .from_config import Flag, Form, from_config
from .opening import opening

evaluation = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

PANELS = {
    "Records": ("data", "env", "side", "pictures", "full_length", "limit", "shots", "target_vocabulary"),
    "Model": ("backend", "revision", "temperature", "max_tokens", "batch_size"),
    "Model server": ("service",),
    "Report": ("out", "name", "learned"),
}


ANALYZER = AskedForm(
    "analyzer",
    AnalyzerEvaluationConfig,
    {
        "model": Flag(argument="MODEL"),
        "full_length": Flag(off="-"),
    },
    PANELS,
)
BASELINES = Form(
    "baselines",
    BaselinesConfig,
    {"data": Flag(argument="DATASET"), "full_length": Flag(off="-")},
    {"Records": ("env", "side", "full_length", "limit"), "Report": ("out", "learned")},
)


@evaluation.command()
@opening
@from_config(ANALYZER, old_config="analyzer__env")
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


@evaluation.command()
@opening
@from_config(BASELINES, old_config="baselines__env")
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
