"""``pivot evaluate``: how good an Analyzer is, and what the log alone gives away."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from .. import plugins
from ..api.stores import build
from ..datasets.split import SIDES, VALIDATION
from ..errors import ConfigError, TrainingError
from ..flows.engines.local import available_cores
from ..labeling.vocabulary import Vocabulary
from ..models.base import Backend
from ..models.extras import look_for
from ..plugins import read_settings
from ..storage import open_storage
from ..training.analyzer import ROLE, Analyzer, Reading
from ..training.evaluation.ablation import PICTURES
from ..training.evaluation.analyzer import Choice, evaluate, read_labels, worked_examples
from ..training.evaluation.baselines import EXTRA, check_learned
from ..training.evaluation.report import HEADER as TABLE_HEADER
from ..training.evaluation.report import (
    SCREEN,
    compared,
    markdown,
    no_reliability,
    read_summary,
    screen_rows,
    table_rows,
    write_report,
)
from ..training.evaluation.suite import (
    FAILURES,
    LEVELS,
    build_suite,
    run_suite,
    suite_choice,
    suite_screen_rows,
    write_suite,
)
from ..training.evaluation.suite import SCREEN as SCREEN_OF_SUITE
from ..training.records import ALL, open_records
from ..training.wording import words_taught
from .console import ProgressBars, out, show_table
from .links import with_links
from .model_flags import ModelFlags
from .options import option

evaluation = typer.Typer(
    help="Say how good an Analyzer or a policy is, and what the log alone gives away.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

FINAL, RUN = "final", "run.json"
"""What a training run leaves: the checkpoint, and what it was made from."""

_RECORDS, _MODEL, _REPORT, _SUITE = "Records", "Model", "Report", "The fixed benchmark"


def _option(help_text: str, *names: str, panel: str, **extra: Any) -> Any:
    """Return an option of a panel whose help says the default in its own words."""
    return option(help_text, *names, panel=panel, show_default=False, **extra)


Config = Annotated[str, _option("Environment (default: all).", "--config", panel=_RECORDS)]
Side = Annotated[
    str, _option(f"Side of the split: {' or '.join(SIDES)} (default: {VALIDATION}).", "--side", panel=_RECORDS)
]
FullLength = Annotated[
    bool,
    _option(
        "Only failures that used every turn: the length of others tells where they ended.",
        "--full-length",
        panel=_RECORDS,
    ),
]
Seed = Annotated[int, _option("Seed of intervals, exchanges and fits (default 0).", "--seed", panel=_REPORT, min=0)]
Learned = Annotated[
    bool,
    _option(
        "Whether gradient boosting and the transformer are fitted, too (default: yes).",
        "--learned/--no-learned",
        panel=_REPORT,
    ),
]


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a model server; it takes their values as ``server``."""
    flags = ModelFlags("analyzer")

    @functools.wraps(command)
    def run(**values: Any) -> None:
        settings = flags.settings(values, "service")
        own = {name: value for name, value in values.items() if not name.startswith("analyzer__")}
        command(**own, server={key: value for key, (_, value) in settings.items()})

    signature = inspect.signature(command, eval_str=True)
    own = [each.replace(kind=each.KEYWORD_ONLY) for each in signature.parameters.values() if each.name != "server"]
    run.__signature__ = signature.replace(parameters=[*own, *flags.parameters()])  # pyright: ignore[reportAttributeAccessIssue]
    return run


@evaluation.command()
@with_links
@with_server
def analyzer(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A run of pivot train sft, a checkpoint folder, a hub id, or a server's model."
        ),
    ],
    data: Annotated[
        str | None,
        _option("Store, dataset folder or hub id (default: what the run was trained on).", "--data", panel=_RECORDS),
    ] = None,
    config: Config = ALL,
    side: Side = VALIDATION,
    pictures: Annotated[
        str, _option(f"The collages: {', '.join(PICTURES)} (default: shown).", "--pictures", panel=_RECORDS)
    ] = "shown",
    full_length: FullLength = False,
    limit: Annotated[
        int | None,
        _option("At most so many records an environment, drawn by their ids.", "--limit", panel=_RECORDS, min=1),
    ] = None,
    shots: Annotated[
        int, _option("Worked training examples before every question (default 0).", "--shots", panel=_RECORDS, min=0)
    ] = 0,
    target_vocabulary: Annotated[
        str | None,
        _option(
            "Words for failure modes: certificate, or paper (default: those the run was taught, or the dataset's).",
            "--target-vocabulary",
            panel=_RECORDS,
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, _option("Folder of the report (default: RUN/evaluation).", "--out", panel=_REPORT)
    ] = None,
    name: Annotated[str, _option("What tables call it (default: the model's name).", "--name", panel=_REPORT)] = "",
    beside: Annotated[
        list[str] | None,
        _option("Another evaluation in the same table, NAME=FOLDER; may be given again.", "--beside", panel=_REPORT),
    ] = None,
    learned: Learned = True,
    seed: Seed = 0,
    suite: Annotated[
        bool, _option("Five environments, two logs, 500 failures each, built from seeds.", "--suite", panel=_SUITE)
    ] = False,
    suite_data: Annotated[
        Path | None, _option("Where it is built (default: OUT/suite-data).", "--suite-data", panel=_SUITE)
    ] = None,
    scale: Annotated[
        float,
        _option(
            "Share of it, to try it out (default 1); other figures do not compare.",
            "--scale",
            panel=_SUITE,
            min=0.01,
            max=1,
        ),
    ] = 1.0,
    backend: Annotated[
        str | None,
        _option("openai (default with --base-url), transformers (default) or vllm.", "--backend", panel=_MODEL),
    ] = None,
    revision: Annotated[str | None, _option("Revision of the model.", "--revision", panel=_MODEL)] = None,
    temperature: Annotated[
        float | None, _option("Sampling temperature (default 0: greedy).", "--temperature", panel=_MODEL, min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, _option("Longest reply in tokens (default 512).", "--max-tokens", panel=_MODEL, min=1)
    ] = None,
    batch_size: Annotated[
        int | None,
        _option("Cases in one pass of a model in this process (transformers).", "--batch-size", panel=_MODEL, min=1),
    ] = None,
    *,
    server: Mapping[str, Any],
) -> None:
    """Ask an Analyzer about held-out failures and measure its answers, beside what the log alone gives away.

    Any model will do: a run of [bold]pivot train sft[/], a checkpoint, a hub id, or one behind an OpenAI-compatible
    server, zero-shot or with worked examples. Blanked or exchanged collages show whether it looks at them.

    [bold]Examples[/]

    pivot evaluate analyzer runs/analyzer

    pivot evaluate analyzer runs/analyzer --pictures exchanged --out runs/exchanged

    pivot evaluate analyzer Qwen/Qwen2.5-VL-3B-Instruct --base-url http://localhost:8000/v1 --data runs/first
    --out runs/zero-shot

    pivot evaluate analyzer Qwen/Qwen2.5-VL-3B-Instruct --base-url http://localhost:8000/v1 --suite --out runs/suite
    """
    _check_word("--pictures", pictures, PICTURES)
    _check_word("--side", side, SIDES)
    if target_vocabulary is not None:
        _check_word("--target-vocabulary", target_vocabulary, get_args(Vocabulary))
    look_for("matplotlib", EXTRA)  # before a model is asked for hours
    if learned:
        check_learned()
    run = _training_run(model)
    options = {
        "model": str(Path(model) / FINAL) if run is not None else model,
        "revision": revision,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "batch_size": batch_size,
    }
    service = server
    chosen = backend or ("openai" if "base_url" in service else "transformers")
    asked = make_backend(chosen, {name: value for name, value in options.items() if value is not None}, service)
    target = out_dir or _default_out(model, run, pictures)
    label = name or (Path(model).name if run is not None else "")

    def make(examples: Mapping[str, Any]) -> Analyzer:
        return Analyzer(asked, examples)

    if suite:
        if data is not None or beside or target_vocabulary:
            raise ConfigError(
                "--suite has its own data, words and table; leave --data, --target-vocabulary and --beside away"
            )
        _suite(suite_data or target / "suite-data", target, make, pictures, shots, scale, learned, label)
        return
    source = data or (run or {}).get("dataset")
    if source is None:
        raise ConfigError(f"{model} does not say what it was trained on; name the data with --data DATASET, or --suite")
    vocabulary: Any = target_vocabulary or words_taught(str(options["model"]))
    records = open_records(source, _config_of(config, run), vocabulary)
    choice = Choice(side, pictures, full_length, limit, seed)  # pyright: ignore[reportArgumentType]
    others = {each: read_summary(folder) for each, folder in map(_beside, beside or ())}
    held = read_labels(records, choice)
    with ProgressBars() as bars:
        result = evaluate(
            records,
            make(worked_examples(records, shots)),
            choice,
            learned=learned,
            name=label,
            on_reading=_advance(bars, "read", len(held.rows)),
            held=held,
        )
    files = write_report(target, result, others)
    for env, rows in compared(result.summary, others).items():
        show_table(f"{env}: {result.summary['environments'][env]['records']} failures", SCREEN, screen_rows(rows))
    for env, figures in result.summary["environments"].items():
        if figures["problems"]:
            counted = ", ".join(f"{kind} {count}" for kind, count in figures["problems"].items())
            out.print(f"{env}: replies that could not be read: {counted}", soft_wrap=True)
        if figures["reliability"] is None:
            out.print(f"{env}: {no_reliability(figures)}, so there is no reliability", soft_wrap=True)
        _show_not_fitted(env, figures["baselines_not_fitted"])
    if held.seen:
        out.print(_SEEN.format(seen=held.seen, count=len(held.rows)), soft_wrap=True)
    out.print(f"\nwritten to {target}: {', '.join(files)}", soft_wrap=True)


_SEEN = (
    "{seen} of {count} records are of levels that the other side of the split holds, too, so this is no figure of "
    "held-out levels; build with --split task for one"
)


@evaluation.command()
@with_links
def baselines(
    data: Annotated[str, typer.Argument(metavar="DATASET", help="A store, a dataset folder, or a hub id.")],
    out_dir: Annotated[
        Path | None, _option("Folder for baselines.json and baselines.md.", "--out", panel=_REPORT)
    ] = None,
    config: Config = ALL,
    side: Side = VALIDATION,
    full_length: FullLength = False,
    learned: Learned = True,
    seed: Seed = 0,
) -> None:
    """Measure what the log alone gives away: the least that an Analyzer has to beat before it can be said to look.

    Majority, uniform, last step, last no-move, first unusable reply, a function of the length, the arithmetic reading
    of the log, gradient boosting and a small transformer; fitted on one side of the split, measured on the other.

    [bold]Examples[/]

    pivot evaluate baselines runs/first

    pivot evaluate baselines runs/first --config frozenlake --full-length
    """
    _check_word("--side", side, SIDES)
    if learned:
        check_learned()
    records = open_records(data, config)
    held = read_labels(records, Choice(side, full_length=full_length, seed=seed))
    tables: dict[str, Any] = {}
    for env in held.environments:
        fitted_on = sum(each.env == env for each in held.train)
        if not fitted_on:
            raise TrainingError(f"{data} has no {env} record on the other side to fit on; build more levels")
        levels = [held.levels[place] for place in held.places(env)]
        table = held.baselines(env, learned=learned, seed=seed).row()
        tables[env] = {"records": len(levels), "levels": len(set(levels)), "fitted on": fitted_on, **table}
    compared_shares = {env: table["shares"] for env, table in tables.items()}
    for env, rows in compared_shares.items():
        facts = tables[env]
        title = f"{env}: {facts['records']} failures of {facts['levels']} levels, fitted on {facts['fitted on']} others"
        show_table(title, SCREEN[:-1], [row[:-1] for row in screen_rows(rows)])
        _show_not_fitted(env, facts["not_fitted"])
    if held.seen:
        out.print(_SEEN.format(seen=held.seen, count=len(held.rows)), soft_wrap=True)
    if out_dir is not None:
        storage = open_storage(out_dir)
        facts = {"dataset": data, "config": config, "side": side, "full_length": full_length, "seed": seed}
        storage.write_json("baselines.json", {**facts, "environments": tables})
        table = markdown(TABLE_HEADER[:-2], [row[:-2] for row in table_rows(compared_shares)])
        storage.write_bytes("baselines.md", f"{table}\n".encode())
        out.print(f"\nwritten to {out_dir}: baselines.json, baselines.md", soft_wrap=True)


def _show_not_fitted(env: str, reasons: Mapping[str, str]) -> None:
    for name, why in reasons.items():
        out.print(f"{env}: {name} was not fitted: {why}", soft_wrap=True)


def make_backend(name: str, options: Mapping[str, Any], service: Mapping[str, Any]) -> Backend:
    """Make the backend of a model by its registered name, after looking for what it needs.

    Raises:
        ConfigError: a setting is unknown or cannot be used. PluginError: there is no such backend, or a package lacks.
    """
    kind: type[Backend] = plugins.load("models", name)
    where = f"model {name}: "
    made = kind(read_settings(kind.config_type, options, where), read_settings(kind.service_type, service, where), ROLE)
    made.check()
    return made


def _suite(
    data: Path,
    target: Path,
    make: Callable[[Mapping[str, Any]], Analyzer],
    pictures: str,
    shots: int,
    scale: float,
    learned: bool,
    name: str,
) -> None:
    """Build the benchmark where it is missing, run it, and show its table."""
    levels = {env: max(8, round(scale * count)) for env, count in LEVELS.items()}
    with ProgressBars() as bars:
        stores = build_suite(data, lambda raw, root: build(raw, root, workers=available_cores(), reporter=bars), levels)
        summary, results = run_suite(
            stores,
            make,
            suite_choice(pictures, max(1, round(scale * FAILURES))),
            shots=shots,
            learned=learned,
            name=name,
            begin=lambda log, count: _advance(bars, f"read, {log} log", count),
        )
    files = write_suite(target, summary, results)
    show_table(f"Failure localisation, suite {summary['suite']}", SCREEN_OF_SUITE, suite_screen_rows(summary))
    out.print(f"\nwritten to {target}: {', '.join(files)}", soft_wrap=True)


def _advance(bars: ProgressBars, stage: str, total: int) -> Callable[[Reading], None]:
    bars.start(stage, total)
    return lambda _: bars.advance(stage, 1)


def _training_run(model: str) -> dict[str, Any] | None:
    """Return what a run of ``pivot train sft`` was made from; None where the folder is none."""
    folder = Path(model)
    if not (folder / FINAL).is_dir() or not (folder / RUN).is_file():
        return None
    try:
        return json.loads((folder / RUN).read_text(encoding="utf-8")).get("config", {})
    except (OSError, ValueError, AttributeError) as error:
        raise TrainingError(
            f"{folder / RUN} cannot be read ({error}); name the checkpoint: {folder / FINAL}"
        ) from error


def _config_of(config: str, run: Mapping[str, Any] | None) -> str:
    """Return the dataset's config: the one named, or the only one that a run was trained on."""
    trained: Sequence[str] = (run or {}).get("configs", ())
    return trained[0] if config == ALL and len(trained) == 1 else config


def _default_out(model: str, run: Mapping[str, Any] | None, pictures: str) -> Path:
    if run is None:
        raise ConfigError("no folder given; say where the report goes with --out DIR")
    return Path(model) / ("evaluation" if pictures == "shown" else f"evaluation-{pictures}")


def _beside(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (equals and name and folder):
        raise ConfigError(f"--beside {text}: expected NAME=FOLDER, such as blank=runs/blank/evaluation")
    return name, Path(folder)


def _check_word(flag: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{flag} {value}: expected one of {', '.join(known)}")
