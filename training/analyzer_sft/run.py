"""A run of Stage I from its settings to its final folder: everything is read and checked first, then it trains.

A run that was stopped at any moment goes on from its last whole checkpoint, with the losses that it would have had.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...models.weights import revision_of
from ...storage import Storage, open_storage
from .. import checkpoint as on_disk
from ..adapters import merged
from ..curves import draw_losses
from ..encode import Encoder
from ..ranks import Ranks
from ..versions import training_versions
from .card import model_card
from .config import MAY_CHANGE, SftConfig
from .data_check import DataReport, check_data
from .samples import TrainingData, read_dataset
from .trainer import Plan, Report, RunLog, load_model, make_plan, make_trainer


@dataclass(frozen=True, slots=True)
class SftResult:
    """What a run left."""

    folder: str
    updates: int
    validation_loss: float | None
    already_complete: bool = False


@dataclass(frozen=True)
class Prepared:
    """Everything that was read and checked before the first update."""

    config: SftConfig
    data: TrainingData
    report: DataReport
    plan: Plan
    model: Any
    encoder: Encoder


def prepare(config: SftConfig) -> Prepared:
    """Read model and data, and check every record; nothing is written. One process checks for all.

    Raises:
        TrainingError: the model, the data or the settings cannot be used.
    """
    data = read_dataset(
        config.dataset,
        config.configs,
        streaming=config.streaming,
        seed=config.seed,
        vocabulary=config.target_vocabulary,
    )
    model, processor = load_model(config)
    encoder = Encoder(processor)
    ranks = Ranks.current()
    report = ranks.by_one(lambda: check_data(data, encoder, config.max_length))
    plan = make_plan(config, report.train.records, ranks.count)
    return Prepared(config, data, report, plan, model, encoder)


def run_record(prepared: Prepared) -> dict[str, Any]:
    """Return what ``run.json`` says."""
    return {
        "config": prepared.config.model_dump(mode="json"),
        "versions": training_versions(),
        "dataset_digest": prepared.data.digest,
        "model_revision": revision_of(prepared.config.model, prepared.config.revision),
        "records": {"train": prepared.report.train.records, "validation": prepared.report.validation.records},
        "left_out_per_epoch": prepared.plan.left_out,
        "updates": prepared.plan.steps,
    }


def train(prepared: Prepared, out: Path, *, resume: bool = False, report: Report = lambda _: None) -> SftResult:
    """Train, or go on with a run that was stopped at any moment; the loss goes on as if it had not been.

    Args:
        prepared: what :func:`prepare` returned.
        out: folder of the run; empty unless ``resume``.
        resume: go on from the last whole checkpoint.
        report: is told how far the run is.

    Raises:
        TrainingError: ``out`` holds something else, or a loss is no number.
    """
    storage = open_storage(out)
    ranks = Ranks.current()
    ranks.by_one(lambda: check_folder(storage, prepared, resume=resume))  # the others would find what it writes
    if resume and storage.stat(f"{on_disk.FINAL}/config.json") is not None:
        return SftResult(str(out), prepared.plan.steps, _last_validation_loss(storage), already_complete=True)
    if not ranks.is_main:
        return _train(prepared, out, storage, _checkpoint(storage, resume), report)
    with storage.lock():
        start = _checkpoint(storage, resume)
        on_disk.clear_torn(storage, start)
        on_disk.cut_metrics(storage, 0 if start is None else start.step)
        storage.write_json(on_disk.RUN, run_record(prepared))
        return _train(prepared, out, storage, start, report)


def _checkpoint(storage: Storage, resume: bool) -> on_disk.Checkpoint | None:
    return on_disk.last_checkpoint(storage) if resume else None


def check_folder(storage: Storage, prepared: Prepared, *, resume: bool) -> None:
    """See that a run may be begun, or gone on with, in a folder.

    Raises:
        TrainingError: it may not.
    """
    on_disk.check_run(storage, run_record(prepared), prepared.config, MAY_CHANGE, resume=resume)


def _train(
    prepared: Prepared, out: Path, storage: Storage, start: on_disk.Checkpoint | None, report: Report
) -> SftResult:
    config, plan = prepared.config, prepared.plan
    trainer = make_trainer(config, plan, prepared.data, prepared.model, prepared.encoder, out)
    log = RunLog(storage, plan.steps_per_epoch, report)
    log.trainer = trainer
    trainer.add_callback(log)
    trainer.accelerator.wait_for_everyone()
    trainer.train(resume_from_checkpoint=str(storage.local_path(start.folder)) if start is not None else None)
    trainer.accelerator.wait_for_everyone()
    loss = _last_validation_loss(storage)
    if trainer.is_world_process_zero():
        draw_losses(storage)
        model = trainer.accelerator.unwrap_model(trainer.model)
        if config.lora:
            model = merged(model, config.model, config.revision)
        model.config.use_cache = True  # the library turned it off for training, and would save that
        results = {} if loss is None else {"loss on held-out levels (nats a target token, mean over records)": loss}
        card = model_card(config, prepared.data.digest, prepared.report, results, training_versions())
        on_disk.save_final(storage, model, prepared.encoder.processor, card, on_disk.further_files(config.model))
    trainer.accelerator.wait_for_everyone()
    return SftResult(str(out), plan.steps, loss)


def _last_validation_loss(storage: Storage) -> float | None:
    losses = [record["validation_loss"] for record in on_disk.read_metrics(storage) if "validation_loss" in record]
    return losses[-1] if losses else None
