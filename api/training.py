"""Functions that train and evaluate: train_sft, train_rl, evaluate_analyzer, evaluate_policy."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..datasets.config import env_config
from ..datasets.progress import Reporter, Silent
from ..errors import ConfigError, TrainingError
from ..flows.engines.local import InProcess, available_cores, execute_with
from ..flows.pipeline import finish_store
from ..models.base import Backend
from ..models.extras import look_for
from ..plugins import read_settings
from ..storage import open_storage
from ..training.analyzer import ROLE, Analyzer, Reading
from ..training.analyzer_sft.config import SftConfig, make_sft_config
from ..training.evaluation.analyzer import Choice, Evaluation, evaluate, read_labels, worked_examples
from ..training.evaluation.baselines import EXTRA, check_learned
from ..training.evaluation.config import (
    AnalyzerEvaluationConfig,
    PolicyEvaluationConfig,
    make_analyzer_evaluation_config,
    make_policy_evaluation_config,
)
from ..training.evaluation.report import read_summary, write_report
from ..training.evaluation.suite import FAILURES, LEVELS, build_suite, run_suite, suite_choice, write_suite
from ..training.policy_rl.config import RlConfig, make_rl_config
from ..training.records import open_records
from ..training.wording import words_taught
from .keywords import public
from .stores import build

if TYPE_CHECKING:
    from ..training.analyzer_sft.run import Prepared, SftResult
    from ..training.evaluation.policy import PolicyResult
    from ..training.policy_rl.loop import Prepared as RlPrepared
    from ..training.policy_rl.loop import RlResult

SFT_PACKAGES = ("torch", "transformers", "trl", "accelerate", "peft", "matplotlib")
RL_PACKAGES = ("torch", "transformers", "accelerate", "matplotlib")
FINAL, RUN = "final", "run.json"
"""Files of a training run: the checkpoint, and the record of its config."""


def _nothing(_: Any) -> None:
    """Ignore a report."""


def check_packages(packages: tuple[str, ...]) -> None:
    """Refuse to start without the packages of training.

    Raises:
        PluginError: one is not installed; the message names the command that installs it.
    """
    for package in packages:
        look_for(package, "train")


@public
def train_sft(
    config: SftConfig | Mapping[str, Any],
    *,
    report: Callable[[str], None] = _nothing,
    checked: "Callable[[Prepared], None]" = _nothing,
) -> "SftResult | None":
    """Train an Analyzer from a dataset (Stage I).

    Args:
        config: dataset, model, ``out`` and how it trains, such as
            ``{"dataset": "runs/first", "model": "Qwen/Qwen2.5-VL-3B-Instruct", "out": "runs/analyzer"}``.
        report: gets a line per log step, in the first process.
        checked: gets the checked records before training begins, in the first process.

    Returns:
        Updates and loss; None with ``check_only``.

    Raises:
        TrainingError: the config, the data or the model cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, SftConfig) else make_sft_config(config)
    check_packages(SFT_PACKAGES)
    if settings.out is None and not settings.check_only:
        raise TrainingError("no folder given, expected one for checkpoints and results; name it with --out DIR")
    # Imported here: PyTorch and its friends take seconds.
    from ..images import encode_png  # noqa: PLC0415
    from ..training.analyzer_sft import run as stage_one  # noqa: PLC0415
    from ..training.checkpoint import CHECK_PICTURE  # noqa: PLC0415
    from ..training.ranks import Ranks  # noqa: PLC0415

    prepared = stage_one.prepare(settings)
    ranks = Ranks.current()
    if settings.out is not None and not settings.check_only:
        storage = open_storage(settings.out)
        ranks.by_one(lambda: stage_one.check_folder(storage, prepared, resume=settings.resume))
    if ranks.is_main:
        checked(prepared)
        if settings.out is not None:
            open_storage(settings.out).write_bytes(CHECK_PICTURE, encode_png(prepared.report.example.drawing()))
    if settings.check_only or settings.out is None:
        return None
    return stage_one.train(prepared, settings.out, resume=settings.resume, report=report if ranks.is_main else _nothing)


@public
def train_rl(
    config: RlConfig | Mapping[str, Any],
    *,
    report: Callable[[str], None] = _nothing,
    prepared: "Callable[[RlPrepared], None]" = _nothing,
) -> "RlResult":
    """Train a policy on an environment with hindsight (Stage II), and label the rollouts that it stored.

    Args:
        config: environment, model, ``out`` and how it trains, such as
            ``{"env": "sokoban", "model": "runs/analyzer/final", "arm": "mp", "out": "runs/agent"}``.
        report: gets a line per update, in the first process.
        prepared: gets the levels and the model before training begins, in the first process.

    Returns:
        Updates and the last figures.

    Raises:
        TrainingError: the config or the model cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, RlConfig) else make_rl_config(config)
    env_config(settings.env, settings.settings)  # a mistake there is reported before anything is loaded
    if settings.out is None:
        raise TrainingError("no folder given, expected one for checkpoints and results; name it with --out DIR")
    check_packages(RL_PACKAGES)
    from ..training.policy_rl import loop  # noqa: PLC0415 - PyTorch and its friends take seconds
    from ..training.policy_rl.rollout_store import FOLDER  # noqa: PLC0415

    ready = loop.prepare(settings)
    main = ready.ranks.is_main
    if main:
        prepared(ready)
    result = loop.train(ready, settings.out, resume=settings.resume, report=report if main else _nothing)
    if main and 0 < settings.keep_rollouts <= settings.updates:
        report("labelling the stored rollouts …")
        finish_store(settings.out / FOLDER, execute_with(InProcess()), Silent())
    return result


# Evaluation


@dataclass(frozen=True, slots=True)
class AnalyzerReport:
    """The outcome of an evaluation of an Analyzer."""

    out: Path
    files: list[str]
    """Files of the report, in ``out``."""
    summary: dict[str, Any]
    evaluation: Evaluation | None
    """The evaluation; None for the fixed benchmark."""
    others: dict[str, dict[str, Any]]
    """Summaries of the evaluations in the same table."""
    seen: int
    """Records of levels that the other split holds, too."""
    records: int


def training_run(model: str) -> dict[str, Any] | None:
    """Return the config of a run of ``pivot train sft``; None for a folder that is something else.

    Raises:
        TrainingError: its record cannot be read.
    """
    folder = Path(model)
    if not (folder / FINAL).is_dir() or not (folder / RUN).is_file():
        return None
    try:
        return json.loads((folder / RUN).read_text(encoding="utf-8")).get("config", {})
    except (OSError, ValueError, AttributeError) as error:
        raise TrainingError(
            f"{folder / RUN} cannot be read ({error}); name the checkpoint: {folder / FINAL}"
        ) from error


def make_backend(name: str, options: Mapping[str, Any], service: Mapping[str, Any]) -> Backend:
    """Make the backend of a model by its registered name, after looking for its packages.

    Raises:
        ConfigError: a setting is unknown or cannot be used. PluginError: the backend or a package is missing.
    """
    kind: type[Backend] = plugins.load("models", name)
    where = f"model {name}: "
    made = kind(read_settings(kind.config_type, options, where), read_settings(kind.service_type, service, where), ROLE)
    made.check()
    return made


def backend_of(config: AnalyzerEvaluationConfig) -> str:
    """Return the backend of an evaluation: the named one, or the one that its options mean."""
    return config.backend or ("openai" if "base_url" in config.service else "transformers")


@public
def evaluate_analyzer(
    config: AnalyzerEvaluationConfig | Mapping[str, Any],
    *,
    reporter: Reporter | None = None,
) -> AnalyzerReport:
    """Ask an Analyzer about labelled failures and measure its answers, next to baselines that read the log alone.

    Args:
        config: model and data, such as ``{"model": "runs/analyzer"}``.
        reporter: gets the progress, in records.

    Returns:
        The figures, and the files of the report.

    Raises:
        ConfigError, TrainingError: the config, the model or the data cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, AnalyzerEvaluationConfig) else make_analyzer_evaluation_config(config)
    bars = reporter or Silent()
    look_for("matplotlib", EXTRA)  # before hours of requests
    if settings.learned:
        check_learned()
    run = training_run(settings.model)
    sampling = settings.model_dump(include={"revision", "temperature", "max_tokens", "batch_size"}, exclude_none=True)
    model = str(Path(settings.model) / FINAL) if run is not None else settings.model
    backend = make_backend(backend_of(settings), {"model": model, **sampling}, settings.service)
    target = settings.out or _default_out(settings, run)
    name = settings.name or (Path(settings.model).name if run is not None else "")

    def make(examples: Mapping[str, Any]) -> Analyzer:
        return Analyzer(backend, examples)

    if settings.suite:
        return _suite(settings, target, make, name, bars)
    source = settings.data or (run or {}).get("dataset")
    if source is None:
        raise ConfigError(
            f"{settings.model} does not name the data it was trained on; name some with --data DATASET, or --suite"
        )
    trained = (run or {}).get("configs", ())
    env = trained[0] if settings.env == "all" and len(trained) == 1 else settings.env
    vocabulary: Any = settings.target_vocabulary or words_taught(model)
    records = open_records(source, env, vocabulary)
    choice = Choice(settings.side, settings.pictures, settings.full_length, settings.limit, settings.seed)
    others = {each: read_summary(folder) for each, folder in settings.beside.items()}
    labels = read_labels(records, choice)
    result = evaluate(
        records,
        make(worked_examples(records, settings.shots)),
        choice,
        learned=settings.learned,
        name=name,
        on_reading=_advance(bars, "read", len(labels.rows)),
        held=labels,
    )
    files = write_report(target, result, others)
    return AnalyzerReport(target, list(files), result.summary, result, others, labels.seen, len(labels.rows))


def _suite(
    settings: AnalyzerEvaluationConfig,
    target: Path,
    make: Callable[[Mapping[str, Any]], Analyzer],
    name: str,
    bars: Reporter,
) -> AnalyzerReport:
    """Build the benchmark where it is missing, and run it."""
    if settings.data is not None or settings.beside or settings.target_vocabulary:
        raise ConfigError(
            "--suite has its own data, vocabulary and table; remove --data, --target-vocabulary and --beside"
        )
    levels = {env: max(8, round(settings.scale * count)) for env, count in LEVELS.items()}
    stores = build_suite(
        settings.suite_data or target / "suite-data",
        lambda raw, root: build(raw, root, workers=available_cores(), reporter=bars),
        levels,
    )
    summary, results = run_suite(
        stores,
        make,
        suite_choice(settings.pictures, max(1, round(settings.scale * FAILURES))),
        shots=settings.shots,
        learned=settings.learned,
        name=name,
        begin=lambda log, count: _advance(bars, f"read, {log} log", count),
    )
    files = write_suite(target, summary, results)
    return AnalyzerReport(target, list(files), summary, None, {}, 0, 0)


def _advance(bars: Reporter, stage: str, total: int) -> Callable[[Reading], None]:
    bars.start(stage, total)
    return lambda _: bars.advance(stage, 1)


def _default_out(settings: AnalyzerEvaluationConfig, run: Mapping[str, Any] | None) -> Path:
    if run is None:
        raise ConfigError("no folder given; name the folder of the report with --out DIR")
    pictures = settings.pictures
    return Path(settings.model) / ("evaluation" if pictures == "shown" else f"evaluation-{pictures}")


@public
def evaluate_policy(
    config: PolicyEvaluationConfig | Mapping[str, Any], *, report: Callable[[str], None] = _nothing
) -> "PolicyResult":
    """Play held-out levels with a policy alone and measure how often it succeeds; Analyzer and Teacher are not asked.

    Args:
        config: the run or checkpoint, such as ``{"model": "runs/agent"}``.
        report: gets single lines.

    Returns:
        The figures, which are also in ``evaluation/policy.json`` of the folder ``out``.

    Raises:
        TrainingError: the config or the model cannot be used. PluginError: a package is missing.
    """
    settings = config if isinstance(config, PolicyEvaluationConfig) else make_policy_evaluation_config(config)
    check_packages(RL_PACKAGES[:3])
    from ..training.evaluation import policy as evaluation  # noqa: PLC0415 - PyTorch takes seconds

    model, folder = settings.model, Path(settings.model)
    run = evaluation.run_config(folder) if folder.is_dir() else None
    fields: dict[str, Any] = {} if run is None else run.model_dump(mode="json")
    name = settings.env or fields.get("env")
    if name is None:
        raise TrainingError(f"{model} is not a run of pivot train rl, so it names no environment; name it with --env")
    if run is not None and name != run.env:
        fields |= {"env": name, "settings": {}, "levels": 0}
    changes = {
        "env": name,
        "settings": {**fields.get("settings", {}), **settings.settings} or None,
        "validation_episodes": settings.episodes,
        "validation_temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "levels": settings.levels,
        "seed": settings.seed,
        "prompts": 1,
        "model": fields.get("model", model),
    }
    resolved = make_rl_config(fields | {key: value for key, value in changes.items() if value is not None})
    weights = model if run is None else evaluation.checkpoint_of(folder, settings.checkpoint)
    target = settings.out or (folder if folder.is_dir() else None)
    if target is None:
        raise TrainingError(f"{model} is not a folder that the result could go to; name one with --out DIR")
    report(f"playing {resolved.validation_episodes} episodes of {name} …")
    result = evaluation.measure_policy(resolved, weights, run)
    open_storage(target).write_json(evaluation.RESULT, result.row())
    return result
