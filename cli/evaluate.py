"""``pivot evaluate``: accuracy of an Analyzer, and of baselines that read the log alone."""

from collections.abc import Mapping
from typing import Any

import typer

from ..api import benchmarking
from ..api import training as api
from ..training.evaluation.config import AnalyzerEvaluationConfig, BaselinesConfig
from ..training.evaluation.report import SCREEN, compared, no_reliability, screen_rows
from ..training.evaluation.run import EvaluationReport
from .asked_form import AskedForm
from .benchmark import show_report
from .console import ProgressBars, out, show_table, warn
from .from_config import Flag, Form, from_config
from .opening import opening

evaluation = typer.Typer(
    help="Measure an Analyzer, a policy, or the baselines that read the log alone.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

PANELS = {
    "Records": ("data", "env", "side", "pictures", "full_length", "limit", "shots", "target_vocabulary"),
    "Model": ("backend", "revision", "temperature", "max_tokens", "batch_size"),
    "Model server": ("service",),
    "Report": ("out", "name", "beside", "learned", "seed"),
    "The fixed benchmark": ("suite", "suite_data", "scale"),
}


ANALYZER = AskedForm(
    "analyzer",
    AnalyzerEvaluationConfig,
    {
        "model": Flag(argument="MODEL"),
        "beside": Flag(metavar="NAME=FOLDER"),
        "full_length": Flag(off="-"),
        "suite": Flag(off="-"),
    },
    PANELS,
)
BASELINES = Form(
    "baselines",
    BaselinesConfig,
    {"data": Flag(argument="DATASET"), "full_length": Flag(off="-")},
    {"Records": ("env", "side", "full_length"), "Report": ("out", "learned", "seed")},
)


@evaluation.command()
@opening
@from_config(ANALYZER, old_config="analyzer__env")
def analyzer(config: AnalyzerEvaluationConfig) -> None:
    """Ask an Analyzer about held-out failures and measure its answers, next to baselines that read the log alone.

    The model may be a run of [bold]pivot train sft[/], a checkpoint, a hub id, or a model behind an
    OpenAI-compatible server, zero-shot or with worked examples. Blanked or exchanged collages show whether it uses the
    images.

    [bold]Examples[/]

    pivot evaluate analyzer runs/analyzer

    pivot evaluate analyzer runs/analyzer --pictures exchanged --out runs/exchanged

    pivot evaluate analyzer Qwen/Qwen2.5-VL-3B-Instruct --base-url http://localhost:8000/v1 --data runs/first
    --out runs/zero-shot
    """
    if config.suite:
        warn("--suite is now pivot benchmark make and pivot benchmark run; the old name goes with the next release")
        with ProgressBars() as bars:
            show_report(benchmarking.evaluate_on_suite(config, reporter=bars))
        return
    with ProgressBars() as bars:
        report = api.evaluate_analyzer(config, reporter=bars)
    _show_evaluation(report)
    out.print(f"\nwritten to {report.out}: {', '.join(report.files)}", soft_wrap=True)


def _show_evaluation(report: EvaluationReport) -> None:
    for env, rows in compared(report.summary, report.others).items():
        show_table(f"{env}: {report.summary['environments'][env]['records']} failures", SCREEN, screen_rows(rows))
    for env, figures in report.summary["environments"].items():
        if figures["problems"]:
            counted = ", ".join(f"{kind} {count}" for kind, count in figures["problems"].items())
            out.print(f"{env}: replies that could not be read: {counted}", soft_wrap=True)
        if figures["reliability"] is None:
            out.print(f"{env}: {no_reliability(figures)}, so reliability is not measured", soft_wrap=True)
        _show_not_fitted(env, figures["baselines_not_fitted"])
    _show_seen(report.summary)


def _show_seen(summary: Mapping[str, Any]) -> None:
    if seen := summary["records_of_levels_on_both_sides"]:
        out.print(
            f"{seen} of {summary['records']} records are of levels that the other split holds, too, so these figures "
            "are not of held-out levels; build with --split task for such figures",
            soft_wrap=True,
        )


@evaluation.command()
@opening
@from_config(BASELINES, old_config="baselines__env")
def baselines(config: BaselinesConfig) -> None:
    """Measure baselines that read the log alone: an Analyzer that uses the images has to beat them.

    Majority, uniform, last step, last no-op, first unusable reply, a function of the length, arithmetic on the fields
    of the log, gradient boosting and a small transformer; fitted on one split, measured on the other.

    [bold]Examples[/]

    pivot evaluate baselines runs/first

    pivot evaluate baselines runs/first --env frozenlake --full-length
    """
    report = api.evaluate_baselines(config)
    for env, figures in report.summary["environments"].items():
        title = f"{env}: {figures['records']} failures of {figures['levels']} levels, fitted on "
        rows = [row[:-1] for row in screen_rows(figures["shares"])]
        show_table(f"{title}{figures['fitted on']} others", SCREEN[:-1], rows)
        _show_not_fitted(env, figures["not_fitted"])
    _show_seen(report.summary)
    if report.out is not None:
        out.print(f"\nwritten to {report.out}: {', '.join(report.files)}", soft_wrap=True)


def _show_not_fitted(env: str, reasons: Mapping[str, str]) -> None:
    for name, why in reasons.items():
        out.print(f"{env}: {name} was not fitted: {why}", soft_wrap=True)
