"""Files of a training run, and the checks that find complete checkpoints after a kill.

The library writes ``OUT/checkpoints/checkpoint-N`` file by file; the checkpoint is complete when its seal
``OUT/checkpoints/N.json``, which lists its files and their sizes, is there and agrees. ``OUT/final`` appears in one
step.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..core.errors import StoreError, TrainingError
from ..core.plugins import Settings
from ..core.storage import Storage, open_storage
from ..labeling.target import Vocabulary
from ..models.extras import need, version_of
from ..models.transformers.processors import VIDEO_PART
from ..models.weights import is_local
from .config import EXTRA

CHECKPOINTS = "checkpoints"
FINAL, STAGED_FINAL, BEST = "final", ".final", "best"
METRICS, RUN, LOSS_PICTURE = "metrics.jsonl", "run.json", "loss.png"
_PREFIX = "checkpoint-"
PACKAGES = ("pivot-vlm", "torch", "transformers", "accelerate", "peft", "numpy", "pillow", "torchvision")
"""Packages whose versions ``run.json`` records."""
KEPT = 2
"""Number of checkpoints that are kept: while one is written, the previous one is the last complete checkpoint."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    """Number of updates of its weights."""

    @property
    def folder(self) -> str:
        """Its folder, relative to the run's."""
        return f"{CHECKPOINTS}/{_PREFIX}{self.step}"


def seal(storage: Storage, step: int) -> None:
    """Complete a checkpoint: flush its files, then list them in its seal."""
    os.sync()
    storage.write_json(_seal_of(step), {"files": _sizes(storage, step)})


def _sizes(storage: Storage, step: int) -> dict[str, int]:
    folder = Checkpoint(step).folder
    return {name.removeprefix(f"{folder}/"): stat.bytes for name, stat in storage.listing(folder).items()}


def _seal_of(step: int) -> str:
    return f"{CHECKPOINTS}/{step}.json"


def _is_complete(storage: Storage, step: int) -> bool:
    seal = _seal_of(step)
    return storage.stat(seal) is not None and storage.read_json(seal)["files"] == _sizes(storage, step)


def last_checkpoint(storage: Storage, updates: int | None = None) -> Checkpoint | None:
    """Return the newest complete checkpoint, or None.

    Raises:
        TrainingError: it was written after more than ``updates`` updates.
    """
    steps = _steps(storage)
    last = next((Checkpoint(step) for step in sorted(steps, reverse=True) if _is_complete(storage, step)), None)
    if last is not None and updates is not None and last.step > updates:
        raise TrainingError(
            f"--updates {updates}: found {storage.local_path(last.folder)}, expected no later checkpoint; "
            f"resume with --updates {last.step}, or begin another run in an empty folder"
        )
    return last


def clear_torn(storage: Storage, kept: Checkpoint | None) -> None:
    """Remove incomplete files of a killed run: all checkpoints after ``kept``, and incomplete ones."""
    for step in _steps(storage):
        if kept is None or step > kept.step or not _is_complete(storage, step):
            storage.delete(_seal_of(step))
            storage.delete(Checkpoint(step).folder)
    storage.delete(STAGED_FINAL)


def _steps(storage: Storage) -> set[int]:
    folders = {name.split("/")[1] for name in storage.listing(CHECKPOINTS)}
    numbers = {each.removeprefix(_PREFIX).removesuffix(".json") for each in folders}
    return {int(number) for number in numbers if number.isdecimal()}


def clear_old(storage: Storage) -> None:
    """Remove all checkpoints except the newest ``KEPT``."""
    for step in sorted(_steps(storage))[:-KEPT]:
        storage.delete(_seal_of(step))
        storage.delete(Checkpoint(step).folder)


def clear_seals(storage: Storage) -> None:
    """Remove the seals of checkpoints that the library removed."""
    for step in _steps(storage):
        if not storage.listing(Checkpoint(step).folder):
            storage.delete(_seal_of(step))


def check_run(
    storage: Storage, record: Mapping[str, Any], config: Settings, free: Sequence[str], *, resume: bool
) -> None:
    """Check that a run may start, or resume, in a folder.

    Args:
        storage: the folder.
        record: content of ``run.json`` that the run would write.
        config: config of the run.
        free: settings that may differ from those in the stored ``run.json``.
        resume: whether the run resumes.

    Raises:
        TrainingError: the folder holds something else, or a run with other settings, data or weights.
    """
    where = storage.address().rstrip("/")
    entries = list(storage.listing())
    if not resume:
        if entries:
            raise TrainingError(
                f"{where} holds {entries[0]}, expected an empty folder; resume that run with --resume, or choose "
                "another --out"
            )
        return
    if storage.stat(RUN) is None:
        return  # killed before its first write: it starts from the beginning
    stored = storage.read_json(RUN)
    now = config.model_dump(mode="json")
    differing = [name for name in now if name not in free and stored["config"].get(name) != now[name]]
    if differing:
        name = differing[0]
        raise TrainingError(
            f"{where} was started with {name} {stored['config'].get(name)!r}, found {getattr(config, name)!r}; set the "
            "same value to resume it, or choose another --out"
        )
    for name, what in (("dataset_digest", "dataset"), ("model_revision", "model")):
        if stored.get(name) != record.get(name):
            raise TrainingError(
                f"{where} was started with a different {what} ({stored[name]}), found {record[name]}; restore the "
                f"{what} to resume, or choose another --out"
            )


def training_versions() -> dict[str, str]:
    """Return the installed versions of the packages that a run depends on, by package."""
    return {package: version_of(package) for package in PACKAGES}


def duration(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds, such as ``1:05:09``."""
    return str(timedelta(seconds=round(seconds)))


def read_metrics(storage: Storage) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl``, without an incomplete last line of a killed run."""
    if storage.stat(METRICS) is None:
        return []
    records = []
    for line in storage.read_bytes(METRICS).decode(errors="replace").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def cut_metrics(storage: Storage, last: int) -> None:
    """Remove the lines of updates after ``last``, which a resumed run repeats; all lines if ``last`` is 0."""
    kept = [record for record in read_metrics(storage) if last and record["step"] <= last]
    if storage.stat(METRICS) is not None:
        storage.write_bytes(METRICS, "".join(json.dumps(record) + "\n" for record in kept).encode())


@contextmanager
def writing(where: object) -> Iterator[None]:
    """Report a failure to write, such as a full disk, as an error that names the remedy.

    Raises:
        TrainingError: the block cannot write ``where``.
    """
    try:
        yield
    except (OSError, RuntimeError, need("safetensors", EXTRA).SafetensorError) as error:  # torch.save: RuntimeError
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"cannot write {where}: {reason}; free some space and run the same command with --resume"
        ) from error


def save_final(
    storage: Storage, model: Any, processor: Any, card: str, source: Mapping[str, bytes], name: str = FINAL
) -> None:
    """Replace ``final``, or the folder ``name``, by model, processor and card in one step.

    Args:
        storage: the run's folder.
        model: the model, adapters merged.
        processor: processor of the model.
        card: text of its README.md.
        source: other files of the model that the run started from, by name, which some readers need (such as the
            processor's video part); what the run saves under the same name replaces them.
        name: name of the folder.

    Raises:
        TrainingError: the folder cannot be written.
    """
    storage.delete(STAGED_FINAL)
    folder = str(storage.local_path(STAGED_FINAL))
    for file, content in source.items():
        storage.write_bytes(f"{STAGED_FINAL}/{file}", content)
    with writing(folder):
        model.save_pretrained(folder)
        save_processor(processor, folder)
    storage.write_bytes(f"{STAGED_FINAL}/README.md", card.encode())
    os.sync()
    storage.replace_folder(STAGED_FINAL, name, storage.folder_id(STAGED_FINAL))


def save_processor(processor: Any, folder: str) -> None:
    """Save a processor without the padding of its last batch, which others who read the tokenizer would apply."""
    backend = getattr(processor.tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
    processor.save_pretrained(folder)


def further_files(model: str) -> dict[str, bytes]:
    """Return the files of a local model that some readers need and ``save_pretrained`` does not write."""
    if not is_local(model):
        return {}
    paths = (Path(model) / name for name in (VIDEO_PART, "generation_config.json"))
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def stored_run(folder: Path) -> dict[str, Any]:
    """Return the record of a run, ``run.json``; empty in another folder.

    Raises:
        TrainingError: it cannot be read.
    """
    storage = open_storage(folder)
    if storage.stat(RUN) is None:
        return {}
    try:
        record = storage.read_json(RUN)
        return {**record, "config": {**record["config"]}}
    except (StoreError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{folder / RUN} cannot be read ({error}), expected the record of a run; copy a checkpoint out of the "
            "folder to use it alone, such as final"
        ) from error


def taught_vocabulary(model: str) -> Vocabulary | None:
    """Return the vocabulary that a checkpoint was trained on; None unless it is ``RUN/final`` or ``RUN/best`` of a run.

    Raises:
        TrainingError: the record of the run cannot be read.
    """
    record = stored_run(Path(model).parent) if Path(model).name in (FINAL, BEST) else {}
    return record.get("target_vocabulary") or record.get("config", {}).get("target_vocabulary")  # Stage I, or II
