"""``pivot evaluate``: accuracy of an Analyzer, and of baselines that read the log alone."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from .. import plugins
from ..api import training as api
from ..errors import TrainingError
from ..storage import open_storage
from ..training.evaluation.analyzer import Choice, read_labels
from ..training.evaluation.baselines import check_learned
from ..training.evaluation.config import AnalyzerEvaluationConfig, BaselinesConfig
from ..training.evaluation.report import HEADER as TABLE_HEADER
from ..training.evaluation.report import SCREEN, compared, markdown, no_reliability, screen_rows, table_rows
from ..training.evaluation.suite import SCREEN as SCREEN_OF_SUITE
from ..training.evaluation.suite import suite_screen_rows
from ..training.records import open_records
from .console import ProgressBars, out, show_table
from .from_config import Flag, Form, from_config
from .links import with_links
from .model_flags import ModelFlags
from .values import Values, plain

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


class AnalyzerForm(Form[AnalyzerEvaluationConfig]):
    """The options of :class:`.AnalyzerEvaluationConfig`, and those of a model server."""

    server = ModelFlags("analyzer")

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield the parameters of the command."""
        yield from super().parameters()
        yield from self.server.parameters()

    def put_flags(self, arguments: Mapping[str, Any], values: Values) -> None:
        """Put what the flags say over what is there; see the base class."""
        super().put_flags(arguments, values)
        for key, (flag, value) in self.server.settings(arguments, "service").items():
            values.put(("service", key), value, flag)

    def resolve(self, values: Values) -> AnalyzerEvaluationConfig:
        """Check the values, those of the server by the model's backend; see the base class."""
        config = super().resolve(values)
        if not config.service:
            return config
        kind = plugins.load("models", api.backend_of(config)).service_type
        checked = values.read(kind, ("service",), "service setting ")
        return config.model_copy(update={"service": {key: plain(getattr(checked, key)) for key in config.service}})


ANALYZER = AnalyzerForm(
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
@with_links
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

    pivot evaluate analyzer Qwen/Qwen2.5-VL-3B-Instruct --base-url http://localhost:8000/v1 --suite --out runs/suite
    """
    with ProgressBars() as bars:
        report = api.evaluate_analyzer(config, reporter=bars)
    if report.evaluation is None:
        show_table(
            f"Failure localisation, suite {report.summary['suite']}", SCREEN_OF_SUITE, suite_screen_rows(report.summary)
        )
    else:
        _show_evaluation(report)
    out.print(f"\nwritten to {report.out}: {', '.join(report.files)}", soft_wrap=True)


def _show_evaluation(report: api.AnalyzerReport) -> None:
    for env, rows in compared(report.summary, report.others).items():
        show_table(f"{env}: {report.summary['environments'][env]['records']} failures", SCREEN, screen_rows(rows))
    for env, figures in report.summary["environments"].items():
        if figures["problems"]:
            counted = ", ".join(f"{kind} {count}" for kind, count in figures["problems"].items())
            out.print(f"{env}: replies that could not be read: {counted}", soft_wrap=True)
        if figures["reliability"] is None:
            out.print(f"{env}: {no_reliability(figures)}, so reliability is not measured", soft_wrap=True)
        _show_not_fitted(env, figures["baselines_not_fitted"])
    if report.seen:
        out.print(_SEEN.format(seen=report.seen, count=report.records), soft_wrap=True)


_SEEN = (
    "{seen} of {count} records are of levels that the other split holds, too, so these figures are not of held-out "
    "levels; build with --split task for such figures"
)


@evaluation.command()
@with_links
@from_config(BASELINES, old_config="baselines__env")
def baselines(config: BaselinesConfig) -> None:
    """Measure baselines that read the log alone: an Analyzer that uses the images has to beat them.

    Majority, uniform, last step, last no-move, first unusable reply, a function of the length, the arithmetic reading
    of the log, gradient boosting and a small transformer; fitted on one split, measured on the other.

    [bold]Examples[/]

    pivot evaluate baselines runs/first

    pivot evaluate baselines runs/first --env frozenlake --full-length
    """
    if config.learned:
        check_learned()
    records = open_records(config.data, config.env)
    labels = read_labels(records, Choice(config.side, full_length=config.full_length, seed=config.seed))
    tables: dict[str, Any] = {}
    for env in labels.environments:
        fitted_on = sum(each.env == env for each in labels.train)
        if not fitted_on:
            raise TrainingError(f"{config.data} has no {env} record in the other split to fit on; build more levels")
        levels = [labels.levels[index] for index in labels.places(env)]
        table = labels.baselines(env, learned=config.learned, seed=config.seed).row()
        tables[env] = {"records": len(levels), "levels": len(set(levels)), "fitted on": fitted_on, **table}
    compared_shares = {env: table["shares"] for env, table in tables.items()}
    for env, rows in compared_shares.items():
        facts = tables[env]
        title = f"{env}: {facts['records']} failures of {facts['levels']} levels, fitted on {facts['fitted on']} others"
        show_table(title, SCREEN[:-1], [row[:-1] for row in screen_rows(rows)])
        _show_not_fitted(env, facts["not_fitted"])
    if labels.seen:
        out.print(_SEEN.format(seen=labels.seen, count=len(labels.rows)), soft_wrap=True)
    if config.out is not None:
        storage = open_storage(config.out)
        made: dict[str, Any] = {"dataset": config.data, "config": config.env, "side": config.side}
        made |= {"full_length": config.full_length, "seed": config.seed}
        storage.write_json("baselines.json", {**made, "environments": tables})
        table = markdown(TABLE_HEADER[:-2], [row[:-2] for row in table_rows(compared_shares)])
        storage.write_bytes("baselines.md", f"{table}\n".encode())
        out.print(f"\nwritten to {config.out}: baselines.json, baselines.md", soft_wrap=True)


def _show_not_fitted(env: str, reasons: Mapping[str, str]) -> None:
    for name, why in reasons.items():
        out.print(f"{env}: {name} was not fitted: {why}", soft_wrap=True)
