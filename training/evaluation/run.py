"""Evaluations of Analyzers from their config to their report: on a dataset, on the benchmark, and of the log alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ... import plugins
from ...errors import ConfigError, StoreError, TrainingError
from ...models.base import Backend
from ...models.extras import look_for
from ...plugins import read_settings
from ...storage import open_storage
from ..analyzer import ROLE, Analyzer, Reading
from ..checkpoint import FINAL, RUN, taught_vocabulary
from ..config import EXTRA
from ..records import ALL, open_records
from .analyzer import Choice, evaluate, read_labels, worked_examples
from .baselines import check_learned
from .config import AnalyzerEvaluationConfig, BaselinesConfig
from .report import HEADER, markdown, put_into_card, read_summary, table_rows, write_report

OnReading = Callable[[Reading], None]
Begin = Callable[[str, int], OnReading]
"""Receives the name and the number of the readings to come; returns what receives each of them."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Figures of an evaluation of an Analyzer, or of the baselines, and the files of its report."""

    out: Path | None
    """Folder of the report; None if nothing was written."""
    files: Sequence[str]
    """Names of its files."""
    summary: Mapping[str, Any] = field(repr=False)
    """Every figure, as JSON data."""
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Summaries of the other evaluations in the same table, by name."""


def evaluate_analyzer(config: AnalyzerEvaluationConfig, *, begin: Begin) -> EvaluationReport:
    """Ask an Analyzer about labelled failures and write the report, as the config says.

    Args:
        config: every setting of the evaluation.
        begin: receives the progress.

    Raises:
        ConfigError, PluginError: a setting, the model or a package cannot be used.
        TrainingError: the dataset, the run or the folder cannot be used.
        ServerGoneError: the model server does not answer.
    """
    look_for("matplotlib", EXTRA)  # before hours of requests
    if config.learned:
        check_learned()
    run, model = training_run(config.model), checkpoint_of(config.model)
    sampling = config.model_dump(include={"revision", "temperature", "max_tokens", "batch_size"}, exclude_none=True)
    backend = make_backend(backend_of(config), {"model": model, **sampling}, config.service)
    out = config.out or _default_out(config, run)
    name = config.name or (Path(config.model).name if run is not None else "")
    source = config.data or (run or {}).get("dataset")
    if source is None:
        raise ConfigError(f"{config.model} does not name the data it was trained on; name some with --data DATASET")
    trained: Sequence[str] = (run or {}).get("configs", ())
    env = trained[0] if config.env == ALL and len(trained) == 1 else config.env
    records = open_records(source, env, config.target_vocabulary or taught_vocabulary(model))
    choice = Choice(config.side, config.pictures, config.full_length, config.limit, config.seed)
    others = {each: read_summary(folder) for each, folder in config.beside.items()}
    labels = read_labels(records, choice)
    result = evaluate(
        records,
        Analyzer(backend, worked_examples(records, config.shots)),
        choice,
        learned=config.learned,
        name=name,
        on_reading=begin("read", len(labels.rows)),
        labels=labels,
    )
    if run is not None and config.data is None and choice == Choice(seed=config.seed):
        put_into_card(Path(config.model), result.summary)
    return EvaluationReport(out, write_report(out, result, others), result.summary, others)


def evaluate_baselines(config: BaselinesConfig) -> EvaluationReport:
    """Measure the baselines that read the log alone, and write ``baselines.json`` and ``baselines.md`` to ``OUT``.

    Raises:
        PluginError: the learned baselines need a package that is not installed.
        TrainingError: the dataset cannot be used, or has no record to fit on.
    """
    if config.learned:
        check_learned()
    choice = Choice(config.side, full_length=config.full_length, seed=config.seed)
    labels = read_labels(open_records(config.data, config.env), choice)
    tables: dict[str, Any] = {}
    for env in labels.environments:
        count = sum(each.env == env for each in labels.train)
        if not count:
            raise TrainingError(f"{config.data} has no {env} record in the other split to fit on; build more levels")
        levels = [labels.levels[index] for index in labels.indices(env)]
        table = labels.baselines(env, learned=config.learned, seed=config.seed).row()
        tables[env] = {"records": len(levels), "levels": len(set(levels)), "fitted on": count, **table}
    facts = {"dataset": config.data, "config": config.env, "side": config.side, "full_length": config.full_length}
    summary = {**facts, "seed": config.seed, "environments": tables}
    files: list[str] = []
    if config.out is not None:
        storage, files = open_storage(config.out), ["baselines.json", "baselines.md"]
        storage.write_json(files[0], summary)
        rows = table_rows({env: table["shares"] for env, table in tables.items()})
        storage.write_bytes(files[1], f"{markdown(HEADER[:-2], [row[:-2] for row in rows])}\n".encode())
    seen = {"records_of_levels_on_both_sides": labels.seen, "records": len(labels.rows)}
    return EvaluationReport(config.out, files, summary | seen)


def make_backend(name: str, options: Mapping[str, Any], service: Mapping[str, Any]) -> Backend:
    """Make the backend of a model by its registered name, and check that its packages are installed.

    Raises:
        ConfigError: a setting is unknown or cannot be used.
        PluginError: the backend is unknown, or a package is missing.
    """
    kind: type[Backend] = plugins.load("models", name)
    where = f"model {name}: "
    settings = read_settings(kind.config_type, options, where)
    backend = kind(settings, read_settings(kind.service_type, service, where), ROLE)
    backend.check()
    return backend


def training_run(model: str) -> dict[str, Any] | None:
    """Return the stored config of a run of ``pivot train sft``; None where ``model`` is not the folder of one.

    ``dataset`` is the address that is valid in every folder, if the dataset is still there.

    Raises:
        TrainingError: its ``run.json`` cannot be read.
    """
    folder = Path(model)
    storage = open_storage(folder)
    if storage.stat(f"{FINAL}/config.json") is None or storage.stat(RUN) is None:
        return None
    try:
        record = storage.read_json(RUN)
        config, address = record.get("config", {}), record.get("dataset_address")
        return config | {"dataset": address} if address and Path(address).exists() else config
    except (StoreError, ValueError, AttributeError) as error:
        raise TrainingError(
            f"{folder / RUN} cannot be read ({error}); name the checkpoint: {folder / FINAL}"
        ) from error


def checkpoint_of(model: str) -> str:
    """Return the checkpoint of a run of ``pivot train sft``; of anything else, ``model`` itself."""
    return str(Path(model) / FINAL) if training_run(model) is not None else model


class NamesBackend(Protocol):
    """Config that may name the backend of its model."""

    @property
    def backend(self) -> str | None:
        """Name of the backend; None leaves the choice to :func:`backend_of`."""
        ...

    @property
    def service(self) -> Mapping[str, Any]:
        """Settings of the model server."""
        ...


def backend_of(config: NamesBackend) -> str:
    """Return the backend of an evaluation: the named one; else ``openai`` with an address, or ``transformers``."""
    return config.backend or ("openai" if "base_url" in config.service else "transformers")


def _default_out(config: AnalyzerEvaluationConfig, run: Mapping[str, Any] | None) -> Path:
    if run is None:
        raise ConfigError("no folder given; name the folder of the report with --out DIR")
    return Path(config.model) / ("evaluation" if config.pictures == "shown" else f"evaluation-{config.pictures}")
