"""Functions of the benchmark of failure localisation and credit: make, run, score, table."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core.admission import allowing
from ..core.errors import ConfigError
from ..core.progress import Reporter, Silent
from ..flows.engines.local import available_cores
from ..models.extras import look_for
from ..training.config import EXTRA, checked
from ..training.evaluation import make
from ..training.evaluation.baselines import Begin, check_learned, measure_baselines
from ..training.evaluation.config import MakeConfig, RunConfig, ScoreConfig, TableConfig
from ..training.evaluation.episodes import GYM, config_of
from ..training.evaluation.items import Benchmark, Variant, is_benchmark, open_benchmark
from ..training.evaluation.run import EvaluationReport, run_benchmark, score_file
from ..training.evaluation.tables import read_result, write_report
from .running import public
from .stores import build


def begin_of(reporter: Reporter | None) -> Begin:
    """Return what starts the stages of an evaluation and reports their progress."""
    bars = reporter or Silent()

    def begin(stage: str, count: int) -> Callable[[], None]:
        bars.start(stage, count)
        return lambda: bars.advance(stage, 1)

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
    bars, begin = reporter or Silent(), begin_of(reporter)
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
            begin=begin,
            measure=(
                (lambda each: measure_baselines(each.benchmark, each.episodes, learned=settings.learned, begin=begin))
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
def run_on_benchmark(config: RunConfig | Mapping[str, Any], *, reporter: Reporter | None = None) -> EvaluationReport:
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
    return run_benchmark(settings, begin_of(reporter))


@public
def score_predictions(config: ScoreConfig | Mapping[str, Any]) -> EvaluationReport:
    """Score a file of predictions, without any model or network.

    Args:
        config: ``predictions`` and ``data``.

    Raises:
        TrainingError: the items cannot be used, or a row of the file is invalid, missing or twice.
    """
    return score_file(config if isinstance(config, ScoreConfig) else checked(ScoreConfig, config))


@public
def benchmark_table(config: TableConfig | Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Write results of the same items side by side: Markdown, JSON and a picture.

    Args:
        config: ``results`` and ``out``.

    Returns:
        The results, and the names of the files.

    Raises:
        TrainingError: a result is missing, or they are of different items. PluginError: a package is missing.
    """
    settings = config if isinstance(config, TableConfig) else checked(TableConfig, config)
    look_for("matplotlib", EXTRA)
    results = [read_result(path) for path in settings.results]
    baselines = [] if settings.data is None else open_benchmark(settings.data).baselines()
    names = {result["name"] for result in results}
    return results, write_report(settings.out, results, [each for each in baselines if each["name"] not in names])
