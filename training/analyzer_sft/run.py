"""A run of Stage I from its config to its final folder: everything is read and checked first, then it trains.

A run that was stopped at any moment resumes from its last complete checkpoint, with the losses that it would have had.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from ...core.storage import Storage, open_storage
from ...models.weights import revision_of
from .. import checkpoint as on_disk
from ..curves import draw_losses
from ..encode import Encoder
from ..loading import merged
from ..memory import Estimate
from ..ranks import Ranks
from ..trackers import check_trackers
from .config import MAY_CHANGE, SftConfig
from .data_check import DataReport, check_data
from .samples import TrainingData, read_dataset
from .trainer import Plan, Report, RunLog, load_model, make_plan, make_trainer

TEMPLATE = Path(__file__).with_name("card_template.md")
NOT_IN_CARD = ("dataset", "model", "configs", "shape", "report_to")
"""Settings that the card shows elsewhere, or that do not affect the weights."""
OF_ADAPTERS = ("lora_rank", "lora_alpha")
"""Settings that a run without adapters does not use."""


@dataclass(frozen=True, slots=True)
class SftResult:
    """Result of a run, of its data check alone (``check_only``), or of its estimate alone (``dry_run``)."""

    folder: str | None
    """Folder of the run; None where nothing was trained."""
    updates: int
    """Optimiser steps of the whole run."""
    validation_loss: float | None
    """Last loss on held-out levels, nats per target token; None if it was not measured."""
    already_complete: bool = False
    """Whether the run was complete before this call."""
    data: DataReport | None = None
    """Data check; None after a dry run."""
    memory: Estimate | None = None
    """Memory estimate of a dry run."""


@dataclass(frozen=True)
class Prepared:
    """Model, data and plan of a run, read and checked before the first update."""

    config: SftConfig
    data: TrainingData
    report: DataReport
    plan: Plan
    model: Any
    """The model; None with ``check_only``."""
    encoder: Encoder


def prepare(config: SftConfig) -> Prepared:
    """Read model and data, and check every record; nothing is written. Each process checks for itself.

    Raises:
        TrainingError: the model, the data or the settings cannot be used.
    """
    check_trackers(config.report_to)
    data = read_dataset(config.dataset, config.configs)
    model, processor = load_model(config)
    encoder = Encoder(processor, config.chat_template_kwargs)
    report = check_data(data, encoder, config.max_length)
    plan = make_plan(config, report.train.records, Ranks.current().count)
    return Prepared(config, data, report, plan, model, encoder)


def run_record(prepared: Prepared) -> dict[str, Any]:
    """Return the content of ``run.json``."""
    return {
        "config": prepared.config.model_dump(mode="json"),
        "dataset_address": prepared.data.address,
        "versions": on_disk.training_versions(),
        "dataset_digest": prepared.data.digest,
        "target_vocabulary": prepared.data.vocabulary,
        "model_revision": revision_of(prepared.config.model, prepared.config.revision),
        "records": {"train": prepared.report.train.records, "validation": prepared.report.validation.records},
        "left_out_per_epoch": prepared.plan.left_out,
        "updates": prepared.plan.steps,
    }


def train(
    prepared: Prepared,
    out: Path,
    resume: bool = False,
    *,
    report: Report = lambda _: None,
    on_checked: Callable[[Prepared], None] = lambda _: None,
    callbacks: Sequence[Any] = (),
) -> SftResult:
    """Train, or resume an interrupted run; the losses equal those of an uninterrupted run.

    Args:
        prepared: what :func:`prepare` returned.
        out: folder of the run; empty unless ``resume``.
        resume: resume from the last complete checkpoint.
        report: receives lines about the progress, in the main process alone.
        on_checked: receives ``prepared`` once the folder is checked, in the main process alone.
        callbacks: instances or classes of ``transformers.TrainerCallback``.

    Raises:
        TrainingError: ``out`` holds something else, or a loss is not finite.
    """
    config, plan, storage, ranks = prepared.config, prepared.plan, open_storage(out), Ranks.current()
    on_disk.check_run(storage, run_record(prepared), config, MAY_CHANGE, resume=resume)
    ranks.wait()  # before the main process writes files there
    if ranks.is_main:
        on_checked(prepared)
    if resume and storage.stat(f"{on_disk.FINAL}/config.json") is not None:
        loss = _last_validation_loss(storage)
        return SftResult(str(out), plan.steps, loss, already_complete=True, data=prepared.report)
    start = on_disk.last_checkpoint(storage) if resume else None
    with storage.lock() if ranks.is_main else nullcontext():
        if ranks.is_main:
            on_disk.clear_torn(storage, start)
            on_disk.cut_metrics(storage, 0 if start is None else start.step)
            storage.write_json(on_disk.RUN, run_record(prepared))
        trainer = make_trainer(config, plan, prepared.data, prepared.model, prepared.encoder, out)
        log = RunLog(storage, plan.steps_per_epoch, report if ranks.is_main else lambda _: None)
        log.trainer = trainer
        for each in (log, *callbacks):
            trainer.add_callback(each)
        ranks.wait()
        trainer.train(resume_from_checkpoint=None if start is None else str(storage.local_path(start.folder)))
        ranks.wait()
        loss = _last_validation_loss(storage)
        if ranks.is_main:
            draw_losses(storage)
            model = trainer.accelerator.unwrap_model(trainer.model)
            if config.lora:
                model = merged(model, config.model, config.revision)
            model.config.use_cache = True  # the library turned it off for training
            results = {} if loss is None else {"loss on held-out levels (nats a target token, mean over records)": loss}
            card = model_card(config, prepared.data.digest, prepared.report, results, on_disk.training_versions())
            on_disk.save_final(storage, model, prepared.encoder.processor, card, on_disk.further_files(config.model))
        ranks.wait()
    return SftResult(str(out), trainer.state.global_step, loss, data=prepared.report)


def _last_validation_loss(storage: Storage) -> float | None:
    losses = [record["validation_loss"] for record in on_disk.read_metrics(storage) if "validation_loss" in record]
    return losses[-1] if losses else None


def model_card(
    config: SftConfig, digest: str, report: DataReport, results: Mapping[str, float], versions: Mapping[str, str]
) -> str:
    """Return the model card of a checkpoint, with the dataset's digest and the figures in ``results``."""
    on_hub = "/" in config.model and not config.model.startswith(("/", "."))
    head: Any = ModelCardData(
        library_name="transformers",
        pipeline_tag="image-text-to-text",
        base_model=config.model if on_hub else None,
        tags=["pivot", "vision-language", "agents", "failure-localisation"],
    )
    side, settings = report.train, config.model_dump(mode="json")
    total = side.picture_tokens + side.prompt_tokens + side.target_tokens
    hidden = NOT_IN_CARD if config.lora else (*NOT_IN_CARD, *OF_ADAPTERS)
    card = ModelCard.from_template(
        head,
        template_path=str(TEMPLATE),
        config=config,
        digest=digest,
        train=_counts(side.environments),
        validation=_counts(report.validation.environments),
        tokens=round(total / side.records),
        picture=round(side.picture_tokens / side.records),
        target=round(side.target_tokens / side.records),
        longest=side.longest,
        settings={name: value for name, value in settings.items() if name not in hidden and value is not None},
        results=results,
        versions=versions,
    )
    return str(card).rstrip() + "\n"


def _counts(environments: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {env}" for env, count in sorted(environments.items()))
