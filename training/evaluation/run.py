"""Asks a model about items, of a dataset or of the benchmark, and scores it; it resumes.

Every answer is appended to ``predictions.jsonl``, from which alone the figures are computed.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...core import plugins
from ...core.errors import ConfigError, PolicyError, TrainingError
from ...core.plugins import read_settings
from ...core.progress import Reporter
from ...core.storage import Storage, open_storage
from ...core.storage.base import storage_error
from ...labeling.target import MAX_TARGET_CHARS, PAPER_MODES, target_modes
from ...models.base import Backend, ChatModel
from ...models.extras import look_for
from ..analyzer import ROLE, Analyzer, AnalyzerCase, Shot, ask_all, encoded_picture
from ..checkpoint import FINAL, stored_run, taught_vocabulary
from ..config import EXTRA, checked
from ..records import ALL, open_records
from .baselines import SILENT, check_learned
from .config import (
    AnalyzerEvaluationConfig,
    AskedModel,
    BaselinesConfig,
    Pictures,
    RecordChoice,
    RunConfig,
    ScoreConfig,
    TableConfig,
)
from .controls import blank, exchanged
from .dataset import items_of_dataset
from .items import ANSWERS, QUESTIONS, Benchmark, Item, Question, open_benchmark
from .predictions import Header, Prediction, Predictions, read_predictions, row_of
from .scores import score
from .tables import read_result, write_report

PREDICTIONS, ITEMS = "predictions.jsonl", "items"
"""In the folder of a run: its rows, and the items of a dataset."""

KEPT_REPLY = MAX_TARGET_CHARS + 1
"""Characters of a reply that are kept: one more than the readers accept, so that a longer one stays too long."""


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Figures of a model or of the baselines, and the files of the report."""

    out: Path | None
    """Folder of the report; None if nothing was written."""
    files: Sequence[str]
    """Names of its files."""
    result: Mapping[str, Any] = field(repr=False)
    """Every figure of the model, as JSON data; empty if the baselines alone were measured."""
    baselines: Sequence[Mapping[str, Any]] = field(repr=False)
    """Results of the baselines that read the log alone."""


def evaluate_analyzer(
    config: AnalyzerEvaluationConfig | Mapping[str, Any], *, reporter: Reporter | None = None
) -> EvaluationReport:
    """Ask an Analyzer about labelled failures and score it, next to baselines that read the log alone; it resumes.

    Args:
        config: model and data, such as ``{"model": "runs/analyzer"}``.
        reporter: receives the progress.

    Raises:
        ConfigError, TrainingError: the config, the model or the data cannot be used. PluginError: a package is missing.
    """
    config = config if isinstance(config, AnalyzerEvaluationConfig) else checked(AnalyzerEvaluationConfig, config)
    look_for("matplotlib", EXTRA)  # before hours of requests
    run, model = training_run(config.model), checkpoint_of(config.model)
    if config.out is None and run is None:
        raise ConfigError("no folder given; name the folder of the report with --out DIR")
    folder = "evaluation" if config.pictures == "shown" else f"evaluation-{config.pictures}"
    out = config.out or Path(config.model) / folder
    source = config.data or (run or {}).get("dataset")
    if source is None:
        raise ConfigError(f"{config.model} does not name the data it was trained on; name some with --data DATASET")
    shared = config.model_dump(include={*AskedModel.model_fields})
    shared["chat_template_kwargs"] = (run or {}).get("chat_template_kwargs", {}) | config.chat_template_kwargs
    name = config.name or named(Path(config.model).name, config)
    settings = RunConfig(**shared | {"model": model, "data": out / ITEMS, "out": out, "name": name})
    _backend(settings)  # refuse its settings before the items are written
    trained: Sequence[str] = (run or {}).get("configs", ())
    env = trained[0] if config.env == ALL and len(trained) == 1 else config.env
    items = _items(source, env, config, out / ITEMS, reporter).items.values()
    taught = taught_vocabulary(model)
    for env, choices in {item.env: item.choices for item in items}.items():
        profile = plugins.load("environments", env).profile
        if taught is not None and (choices == PAPER_MODES) != (target_modes(profile, taught) == PAPER_MODES):
            raise TrainingError(
                f"{source} names failures of {env} {', '.join(choices)}, expected the {taught}'s names, on which "
                f"{model} was trained; make the dataset again with: pivot relabel STORE --target-vocabulary {taught}"
            )
    return run_benchmark(settings, reporter=reporter)


def evaluate_baselines(
    config: BaselinesConfig | Mapping[str, Any], *, reporter: Reporter | None = None
) -> EvaluationReport:
    """Measure the baselines that read the log alone; an Analyzer that uses the images has to beat them.

    Args:
        config: data and folder, such as ``{"data": "runs/first", "out": "runs/log-alone"}``.
        reporter: receives the progress.

    Raises:
        TrainingError: the config or the data cannot be used. PluginError: a package is missing.
    """
    config = config if isinstance(config, BaselinesConfig) else checked(BaselinesConfig, config)
    if config.out is None:
        with TemporaryDirectory() as folder:
            baselines = _items(config.data, config.env, config, Path(folder), reporter).baselines()
        return EvaluationReport(None, (), {}, baselines)
    look_for("matplotlib", EXTRA)
    baselines = _items(config.data, config.env, config, config.out / ITEMS, reporter).baselines()
    fitted = [each for each in baselines if each["cells"]]
    files = write_report(config.out, fitted, [each for each in baselines if not each["cells"]])
    return EvaluationReport(config.out, files, {}, baselines)


def _items(source: str, env: str, config: RecordChoice, root: Path, reporter: Reporter | None) -> Benchmark:
    if config.learned:
        check_learned()
    return items_of_dataset(open_records(source, env), config, root, reporter or SILENT)


def named(name: str, config: AskedModel) -> str:
    """Return the name of a model in tables, with the treatment of the pictures."""
    return name if config.pictures == "shown" else f"{name}, pictures {config.pictures}"


def score_file(config: ScoreConfig | Mapping[str, Any]) -> EvaluationReport:
    """Score a file of predictions, without any model or network.

    Args:
        config: ``predictions`` and ``data``.

    Raises:
        TrainingError: the items cannot be used, or a row of the file is invalid, missing or twice.
    """
    config = config if isinstance(config, ScoreConfig) else checked(ScoreConfig, config)
    benchmark = open_benchmark(config.data)
    return _report(benchmark, read_predictions(config.predictions, benchmark), config.out or config.predictions.parent)


def write_table(config: TableConfig | Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Write results of the same items side by side: Markdown, JSON and a picture.

    Args:
        config: ``results`` and ``out``.

    Returns:
        The results, and the names of the files.

    Raises:
        TrainingError: a result is missing, or they are of different items. PluginError: a package is missing.
    """
    config = config if isinstance(config, TableConfig) else checked(TableConfig, config)
    look_for("matplotlib", EXTRA)
    results = [read_result(path) for path in config.results]
    baselines = [] if config.data is None else open_benchmark(config.data).baselines()
    return results, write_report(config.out, results, baselines)


def _report(benchmark: Benchmark, predictions: Predictions, out: Path) -> EvaluationReport:
    if not benchmark.truths:
        raise TrainingError(
            f"{benchmark.root} holds no {ANSWERS}, expected the answers; only the maintainer can score predictions"
        )
    result, baselines = score(benchmark, predictions), benchmark.baselines()
    files = write_report(out, [result], baselines)
    return EvaluationReport(out, files, result, baselines)


def run_benchmark(config: RunConfig | Mapping[str, Any], *, reporter: Reporter | None = None) -> EvaluationReport:
    """Ask a model about every item of a benchmark, and score its replies; the same call resumes.

    The public part of a benchmark has no answers: the replies are written, and its maintainer scores them.

    Args:
        config: ``model``, ``data`` and ``out``.
        reporter: receives the progress, in answers.

    Raises:
        ConfigError, PluginError: a setting cannot be used, or a package is missing.
        TrainingError: the benchmark or the folder cannot be used, or every request was refused.
        ServerGoneError: the model server does not answer.
    """
    config = config if isinstance(config, RunConfig) else checked(RunConfig, config)
    look_for("matplotlib", EXTRA)
    benchmark = open_benchmark(config.data)
    if unknown := sorted({*config.env} - {*benchmark.environments}):
        raise ConfigError(f"--env: found {unknown[0]!r}, expected one of {', '.join(benchmark.environments)}")
    questions: tuple[Question, ...] = tuple(
        each for each in QUESTIONS if not config.question or each in config.question
    )
    environments = tuple(each for each in benchmark.environments if not config.env or each in config.env)
    backend = _backend(config)
    settings = {**Analyzer(backend).config, "shots": config.shots, "pictures": config.pictures}
    name = config.name or named(Path(config.model).name, config)
    header = Header(
        benchmark.fingerprint,
        name,
        version=benchmark.facts["version"],
        questions=questions,
        environments=environments,
        settings=settings,
    )
    storage = open_storage(config.out)
    rows = _stored_rows(storage, header, benchmark)
    _write(storage, header, rows.values())
    covered = [item for item in benchmark.items.values() if header.covers(item)]
    items = [item for item in covered if item.item_id not in rows]
    bars = reporter or SILENT
    bars.start("answers", len(items))
    with storage.local_path(PREDICTIONS).open("a", encoding="utf-8", errors="replace") as stream:

        def keep(row: Prediction) -> None:
            rows[row.id] = row
            try:
                stream.write(row.line())
                stream.flush()
            except OSError as error:
                raise storage_error("write", storage.address(PREDICTIONS), error) from error
            bars.advance("answers", 1)

        if items:
            ask_model(benchmark, backend, items, keep, shots=config.shots, pictures=config.pictures)
    ordered = [rows[item.item_id] for item in covered]
    _write(storage, header, ordered)
    _refuse_silence(storage, ordered)
    if not benchmark.truths:
        return EvaluationReport(config.out, (PREDICTIONS,), {}, ())
    return _report(benchmark, read_predictions(config.out / PREDICTIONS, benchmark), config.out)


def _backend(config: RunConfig) -> Backend:
    own = {"revision", "temperature", "max_tokens", "chat_template_kwargs", "batch_size"}
    options = config.model_dump(include=own, exclude_none=True)
    return make_backend(config.backend_name, {"model": checkpoint_of(config.model), **options}, config.service)


# Models


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
    record = stored_run(Path(model)) if open_storage(Path(model)).stat(f"{FINAL}/config.json") is not None else {}
    if not record:
        return None
    address = record.get("dataset_address")
    return record["config"] | ({"dataset": address} if address and Path(address).exists() else {})


def checkpoint_of(model: str) -> str:
    """Return the checkpoint of a run of ``pivot train sft``; of anything else, ``model`` itself."""
    return str(Path(model) / FINAL) if training_run(model) is not None else model


# Files of a run


def _stored_rows(storage: Storage, header: Header, benchmark: Benchmark) -> dict[str, Prediction]:
    """Return the rows of an earlier start, except those without a reply, which are asked for again.

    A line that a kill has cut short is left out.

    Raises:
        TrainingError: the folder holds a run with other settings, or a damaged row.
    """
    if storage.stat(PREDICTIONS) is None:
        return {}
    rows, where = dict[str, Prediction](), storage.address(PREDICTIONS)
    first, *lines = storage.read_bytes(PREDICTIONS).split(b"\n")
    try:
        stored, record = json.loads(first), json.loads(header.line())
    except ValueError as error:
        raise TrainingError(f"{where} does not begin with a header ({error}); choose another --out") from error
    if stored != record:
        names = sorted(name for name in record if not isinstance(stored, dict) or stored.get(name) != record[name])
        raise TrainingError(
            f"{where} is of a run with another {', '.join(names)}; resume it with the same command, or choose another "
            "--out"
        )
    for number, line in enumerate(lines[:-1], 2):
        row = row_of(line, f"{where}, line {number}", benchmark)
        if row.status != "unanswered":
            rows[row.id] = row
    return rows


def _write(storage: Storage, header: Header, rows: Iterable[Prediction]) -> None:
    content = header.line() + "".join(row.line() for row in rows)
    storage.write_bytes(PREDICTIONS, content.encode("utf-8", "replace"))


def _refuse_silence(storage: Storage, rows: Collection[Prediction]) -> None:
    """Refuse a run in which no request was answered.

    Raises:
        TrainingError: it is one.
    """
    if all(row.status != "answered" for row in rows):
        reasons = [row.detail for row in rows if row.detail]
        raise TrainingError(
            f"none of {len(rows)} requests was answered, so there is nothing to score"
            + (f" (last reason: {reasons[-1]})" if reasons else "")
            + f"; the rows are in {storage.address(PREDICTIONS)}; fix the cause and run the command again"
        )


# Requests


def ask_model(
    benchmark: Benchmark,
    backend: Backend,
    items: Sequence[Item],
    keep: Callable[[Prediction], None],
    *,
    shots: int = 0,
    pictures: Pictures = "shown",
) -> None:
    """Ask a model about items, with enough requests at a time to keep it busy.

    Args:
        benchmark: the benchmark of the items.
        backend: the model.
        items: the items to ask about.
        keep: receives every row, in the order in which they come.
        shots: number of worked examples in front of every question.
        pictures: treatment of the pictures.

    Raises:
        TrainingError: a picture was changed. ServerGoneError, ConfigError, PluginError: see :func:`.ask_all`.
    """
    analyzers: dict[tuple[str, str, str], Analyzer] = {}
    for item in items:
        key = (item.question, item.env, item.log)
        if key not in analyzers:
            alike = [each for each in benchmark.examples if (each.item.question, each.item.env, each.item.log) == key]
            examples = [
                Shot(case_of_item(each.item, benchmark.pictures(each.item)), each.reply) for each in alike[:shots]
            ]
            analyzers[key] = Analyzer(backend, examples)
    partners = _partners(benchmark) if pictures == "exchanged" else {}

    def cases() -> Iterator[tuple[Item, AnalyzerCase]]:
        for item in items:
            shown = benchmark.pictures(benchmark.items[partners.get(item.item_id, item.item_id)])
            yield (item, case_of_item(item, tuple(map(blank, shown)) if pictures == "blank" else shown))

    async def ask(model: ChatModel, question: tuple[Item, AnalyzerCase]) -> Prediction:
        item, case = question
        try:
            answer = await model.answer(analyzers[item.question, item.env, item.log].request(case))
        except PolicyError as error:
            return Prediction(item.item_id, "unanswered", detail=str(error))
        call = answer.call
        usage: dict[str, Any] = {name: call.get(name) for name in ("prompt_tokens", "completion_tokens", "cost")}
        usage |= {"seconds": call.get("latency"), "left_out": tuple(call.get("left_out") or ())}
        if answer.refusal is not None:
            return Prediction(item.item_id, "refused", detail=answer.refusal[:200], **usage)
        return Prediction(item.item_id, reply=answer.text[:KEPT_REPLY], **usage)

    ask_all(backend, cases(), ask, keep)


def case_of_item(item: Item, pictures: Sequence[bytes]) -> AnalyzerCase:
    """Return the case of an item with some pictures."""
    content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": item.prompt}]
    message = {"role": "user", "content": content}
    images = tuple(map(encoded_picture, pictures))
    return AnalyzerCase(item.item_id, item.env, (message,), images, item.num_steps, ("none",))


def _partners(benchmark: Benchmark) -> dict[str, str]:
    """Return the item whose pictures each item gets, which show a different level."""
    partners: dict[str, str] = {}
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in benchmark.items.values():
        groups.setdefault((item.question, item.log), []).append(item)
    for group in groups.values():
        records = [{"env": item.env, "num_steps": item.num_steps} for item in group]
        truths = benchmark.truths  # in the public part, every picture is of a level of its own
        levels = [truths[item.item_id].level if truths else item.pixels[0] for item in group]
        for item, index in zip(group, exchanged(records, levels), strict=True):
            partners[item.item_id] = group[index].item_id
    return partners
