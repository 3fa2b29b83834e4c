"""Functions of the benchmark of failure localisation and credit: make, run, score, table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..admission import allowing
from ..datasets.progress import Reporter, Silent
from ..errors import ConfigError
from ..flows.engines.local import available_cores
from ..models.extras import look_for
from ..training.benchmark import make
from ..training.benchmark.config import MakeConfig, RunConfig, ScoreConfig, TableConfig
from ..training.benchmark.episodes import GYM, config_of
from ..training.benchmark.items import Benchmark, Variant, is_benchmark, open_benchmark
from ..training.benchmark.log_baselines import measure_baselines
from ..training.benchmark.predictions import read_predictions
from ..training.benchmark.run import PREDICTIONS, Begin, run_benchmark
from ..training.benchmark.scores import score
from ..training.benchmark.tables import baselines_of, read_result, write_result, write_table
from ..training.config import EXTRA, checked
from ..training.evaluation.baselines import check_learned
from ..training.evaluation.config import AnalyzerEvaluationConfig
from ..training.evaluation.run import training_run
from ..training.records import ALL
from .running import public
from .stores import build


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """Result of a run or of a scored file, and the files of its report."""

    out: Path
    files: tuple[str, ...]
    result: Mapping[str, Any] = field(repr=False)
    """Every figure, as JSON data."""
    baselines: list[dict[str, Any]] = field(repr=False)
    """Results of the baselines that read the log alone."""


def _begin(reporter: Reporter) -> Begin:
    def begin(stage: str, count: int) -> Callable[[], None]:
        reporter.start(stage, count)
        return lambda: reporter.advance(stage, 1)

    return begin


@public
def make_benchmark(config: MakeConfig | Mapping[str, Any], *, reporter: Reporter | None = None) -> Benchmark:
    """Make the benchmark from seeds, with its baselines; an existing one is checked and kept.

    Args:
        config: ``out`` and what differs from the public benchmark.
        reporter: receives the progress.

    Raises:
        ConfigError: a setting cannot be used. TrainingError: the folder holds another benchmark.
        PluginError: a package of the learned baselines is missing.
    """
    settings = config if isinstance(config, MakeConfig) else checked(MakeConfig, config)
    bars = reporter or Silent()
    levels, variant = _levels_of(settings), _variant_of(settings)
    if is_benchmark(settings.out):
        return make.check_made(open_benchmark(settings.out), levels, settings.seed, settings.scale, variant)
    if settings.baselines and settings.learned:
        check_learned()
    named = [name for env in levels if env.startswith(GYM) for name in config_of(env).code]  # the caller names the ids
    with allowing(named):
        return make.make_benchmark(
            settings.out,
            lambda raw, root: build(raw, root, workers=available_cores(), reporter=bars),
            levels=levels,
            seed=settings.seed,
            share=settings.scale,
            private=settings.private,
            variant=variant,
            begin=_begin(bars),
            measure=(
                (lambda each: measure_baselines(each, learned=settings.learned, begin=_begin(bars)))
                if settings.baselines
                else None
            ),
        )


def _levels_of(settings: MakeConfig) -> dict[str, int]:
    """Return the number of levels per environment.

    Raises:
        ConfigError: an environment is unknown. PluginError: the package of one is missing.
    """
    foreign = [env for env in settings.env if env.startswith(GYM) and env != GYM]
    if unknown := sorted({*settings.env} - {*foreign, *make.LEVELS}):
        raise ConfigError(
            f"--env: found {unknown[0]!r}, expected one of {', '.join(make.LEVELS)}, or gym:ID with the id of a "
            "gymnasium environment"
        )
    levels = {env: count for env, count in make.LEVELS.items() if not settings.env or env in settings.env}
    levels |= {env: make.OTHER_LEVELS for env in foreign if env not in levels}
    if any(env.startswith(f"{GYM}MiniGrid-") for env in levels):
        look_for("minigrid", "gym")
    if any(env.startswith(GYM) for env in levels):
        look_for("pygame", "gym")
    return levels


def _variant_of(settings: MakeConfig) -> Variant:
    """Return the form of the items.

    Raises:
        ConfigError: ``max_pictures`` would be ignored.
    """
    if settings.images == "collage":
        if settings.max_pictures is not None:
            raise ConfigError("--max-pictures: a collage is one picture; add --images steps, or remove it")
        return Variant(thoughts=settings.thoughts)
    return Variant(settings.images, settings.max_pictures or make.MOST_PICTURES, settings.thoughts)


@public
def run_on_benchmark(config: RunConfig | Mapping[str, Any], *, reporter: Reporter | None = None) -> BenchmarkReport:
    """Ask a model about every item of a benchmark, and score its replies; the same call resumes.

    Args:
        config: model or stand-in, ``data`` and ``out``.
        reporter: receives the progress, in answers.

    Raises:
        ConfigError, PluginError: a setting would be ignored or cannot be used, or a package is missing.
        TrainingError: the benchmark or the folder cannot be used, or every request was refused.
        ServerGoneError: the model server does not answer.
    """
    settings = config if isinstance(config, RunConfig) else checked(RunConfig, config)
    benchmark, predictions = run_benchmark(settings, _begin(reporter or Silent()))
    result = score(benchmark, predictions)
    baselines = baselines_of(benchmark, result)
    files = (PREDICTIONS, *write_result(settings.out, result, baselines))
    return BenchmarkReport(settings.out, files, result, baselines)


@public
def score_predictions(config: ScoreConfig | Mapping[str, Any]) -> BenchmarkReport:
    """Score a file of predictions, without any model or network.

    Args:
        config: ``predictions`` and ``data``.

    Raises:
        TrainingError: the benchmark cannot be used, or a row of the file is invalid, missing or twice.
    """
    settings = config if isinstance(config, ScoreConfig) else checked(ScoreConfig, config)
    benchmark = open_benchmark(settings.data)
    result = score(benchmark, read_predictions(settings.predictions, benchmark))
    baselines = baselines_of(benchmark, result)
    out = settings.out or settings.predictions.parent
    return BenchmarkReport(out, tuple(write_result(out, result, baselines, settings.by)), result, baselines)


@public
def benchmark_table(config: TableConfig | Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Write results of one benchmark side by side: Markdown, JSON and a picture.

    Args:
        config: ``results`` and ``out``.

    Returns:
        The results, and the names of the files.

    Raises:
        TrainingError: a result is missing, or they are of different benchmarks. PluginError: a package is missing.
    """
    settings = config if isinstance(config, TableConfig) else checked(TableConfig, config)
    look_for("matplotlib", EXTRA)
    results = [read_result(path) for path in settings.results]
    baselines = [] if settings.data is None else open_benchmark(settings.data).baselines()
    names = {result["name"] for result in results}
    kept = [each for each in baselines if each["name"] not in names]
    return results, write_table(settings.out, results, kept, settings.by)


@public
def evaluate_on_suite(config: AnalyzerEvaluationConfig, *, reporter: Reporter | None = None) -> BenchmarkReport:
    """Make the benchmark if it is missing, and run a model on it: ``pivot evaluate analyzer --suite``, an alias.

    Args:
        config: settings of the evaluation.
        reporter: receives the progress.

    Raises:
        ConfigError: a setting does not apply to the benchmark. TrainingError, PluginError, ServerGoneError: see
            :func:`make_benchmark` and :func:`run_on_benchmark`.
    """
    ignored = {"--data": config.data, "--beside": config.beside, "--target-vocabulary": config.target_vocabulary}
    ignored |= {"--limit": config.limit, "--full-length": config.full_length, "--seed": config.seed}
    ignored |= {"--env": config.env != ALL, "--side": config.side != "validation"}
    if flags := [flag for flag, value in ignored.items() if value]:
        raise ConfigError(f"--suite has its own data, vocabulary and table; remove {', '.join(flags)}")
    if config.out is None and training_run(config.model) is None:
        raise ConfigError("no folder given; name the folder of the report with --out DIR")
    out = config.out or Path(config.model) / "benchmark"
    data = config.suite_data or out / "suite-data"
    make_benchmark(MakeConfig(out=data, scale=config.scale, learned=config.learned), reporter=reporter)
    shared = ("model", "name", "pictures", "shots", "backend", "revision", "temperature", "max_tokens", "batch_size")
    fields = {name: getattr(config, name) for name in (*shared, "service")}
    return run_on_benchmark(RunConfig(data=data, out=out, **fields), reporter=reporter)
