"""``pivot benchmark``: make the benchmark of failure localisation and credit, ask a model, score replies, tables."""

from ..core.errors import ConfigError
from ..flows.training import make_benchmark
from ..training.evaluation.config import MakeConfig, RunConfig, ScoreConfig, TableConfig
from ..training.evaluation.run import EvaluationReport, run_benchmark, score_file, write_table
from ..training.evaluation.tables import SCREEN, USAGE_HEADER, reasons_not_fitted, screen_rows, usage_row
from .console import ProgressBars, out, show_table
from .from_config import Flag, Form, from_config
from .help_texts import App
from .model_flags import AskedForm

benchmark = App()

MAKE = Form(
    "make",
    MakeConfig,
    {"out": Flag(argument="BENCHMARK"), "env": Flag(metavar="ENV")},
    {"Items": ("env", "private", "scale"), "Baselines": ("learned",)},
)


RUN = AskedForm(
    "run",
    RunConfig,
    {"model": Flag(argument="MODEL"), "env": Flag(metavar="ENV"), "question": Flag(metavar="QUESTION")},
    {
        "Items": ("data", "question", "env", "pictures", "shots"),
        "Model": ("backend", "revision", "temperature", "max_tokens", "batch_size"),
        "Model server": ("service",),
        "Report": ("out", "name"),
    },
)
SCORE = Form("score", ScoreConfig, {"predictions": Flag(argument="PREDICTIONS")})
TABLE = Form("table", TableConfig, {"results": Flag(argument="RESULT...")})


@benchmark.store_command()
@from_config(MAKE)
def make(config: MakeConfig) -> None:
    """Make the benchmark: nothing is downloaded, and everyone gets the same fingerprint.

    An existing benchmark is checked and kept; an interrupted one is resumed. [bold]--private[/] makes one that nobody
    has seen: publish everything but its folder [bold]private[/].

    [bold]Examples[/]

    pivot benchmark make runs/benchmark

    pivot benchmark make runs/trial --scale 0.02 --env sokoban --no-learned

    pivot benchmark make runs/doors --env gym:MiniGrid-DoorKey-5x5-v0
    """
    with ProgressBars() as bars:
        made = make_benchmark(config, reporter=bars)
    counts = ", ".join(f"{env} {count}" for env, count in made.facts["items"].items())
    out.print(f"version {made.facts['version']}, fingerprint {made.fingerprint}", soft_wrap=True)
    out.print(f"{len(made.items)} items: {counts}: {made.root}", soft_wrap=True)


@benchmark.store_command()
@from_config(RUN)
def run(config: RunConfig) -> None:
    """Ask a model about every item, score its replies, and write predictions, result and table.

    The model may be behind an OpenAI-compatible server, a run of [bold]pivot train sft[/], a checkpoint or a hub
    id. Run the same command again to resume.

    [bold]Example[/]

    pivot benchmark run Qwen/Qwen2.5-VL-3B-Instruct --base-url http://localhost:8000/v1 --data runs/benchmark
    --out runs/qwen
    """
    with ProgressBars() as bars:
        report = run_benchmark(config, reporter=bars)
    show_report(report)


@benchmark.store_command()
@from_config(SCORE)
def score(config: ScoreConfig) -> None:
    """Score a file of predictions offline, with the same figures as the run that wrote it.

    A row that is invalid, missing or twice is refused with its line.

    [bold]Examples[/]

    pivot benchmark score predictions.jsonl --data runs/benchmark --out runs/scored
    """
    show_report(score_file(config))


@benchmark.store_command()
@from_config(TABLE)
def table(config: TableConfig) -> None:
    """Write several results of one benchmark side by side: Markdown, JSON and a picture.

    [bold]Examples[/]

    pivot benchmark table runs/qwen runs/mixture --data runs/benchmark --out runs/table
    """
    if not config.results:
        raise ConfigError("missing argument 'RESULT': name results, or their folders")
    results, files = write_table(config)
    show_table("cost", USAGE_HEADER[:5], [usage_row(each)[:5] for each in results])
    out.print(f"written to {config.out}: {', '.join(files)}", soft_wrap=True)


def show_report(report: EvaluationReport) -> None:
    """Show the main figures of a model, or of every baseline, and their limits."""
    results = [report.result] if report.result else list(report.baselines)
    if not results:
        out.print("this benchmark holds no answers; send the predictions to its maintainer, who scores them")
    for result in results:
        for env, rows in screen_rows(result, report.baselines).items():
            show_table(f"{result['name']}, {env}: main figures in percent", SCREEN, rows)
    if report.result:
        show_table("cost", USAGE_HEADER[:6], [usage_row(report.result)[:6]])
        for cell in report.result["cells"]:
            if cell["problems"] and cell["task"] != "mode":
                counted = ", ".join(f"{kind} {count}" for kind, count in cell["problems"].items())
                place = f"{cell['task']}, {cell['env']}, {cell['log']} log"
                out.print(f"{place}: replies that could not be read: {counted}", soft_wrap=True)
    for reason in reasons_not_fitted(report.baselines):
        out.print(f"not fitted: {reason}", soft_wrap=True)
    if results and (seen := results[0]["levels_on_both_sides"]):
        out.print(
            f"{seen} levels are in the other split, too, so these figures are not of held-out levels; build with "
            "--split task for such figures",
            soft_wrap=True,
        )
    if report.out is not None:
        out.print(f"\nwritten to {report.out}: {', '.join(report.files)}", soft_wrap=True)
