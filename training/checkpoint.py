"""What a run leaves on disk, and which of it counts after a kill.

``OUT/checkpoints/checkpoint-N`` is written by the library, file by file; it counts once ``OUT/checkpoints/N.json``,
which lists its files and their sizes, has been written after it. ``OUT/final`` appears in one step, whole.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TrainingError
from ..models.weights import is_local
from ..plugins import Settings
from ..storage import FollowedPath, Storage, open_storage
from .config import differing_fields

CHECKPOINTS = "checkpoints"
FINAL, STAGED_FINAL, BEST = "final", ".final", "best"
METRICS, RUN, LOSS_PICTURE, CHECK_PICTURE = "metrics.jsonl", "run.json", "loss.png", "data_check.png"
_PREFIX = "checkpoint-"
KEPT = 2
"""Checkpoints that are kept: while one is written, the one before it is the last that counts."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint."""

    step: int
    """Updates done."""

    @property
    def folder(self) -> str:
        """Its folder, relative to the run's."""
        return f"{CHECKPOINTS}/{_PREFIX}{self.step}"


def seal(storage: Storage, step: int) -> None:
    """Make a checkpoint count: its files are flushed, then listed."""
    folder = Checkpoint(step).folder
    os.sync()
    sizes = {name.removeprefix(f"{folder}/"): stat.bytes for name, stat in storage.listing(folder).items()}
    storage.write_json(_seal_of(step), {"files": sizes})


def _seal_of(step: int) -> str:
    return f"{CHECKPOINTS}/{step}.json"


def _is_whole(storage: Storage, step: int) -> bool:
    if storage.stat(_seal_of(step)) is None:
        return False
    folder = Checkpoint(step).folder
    sizes = {name.removeprefix(f"{folder}/"): stat.bytes for name, stat in storage.listing(folder).items()}
    return storage.read_json(_seal_of(step))["files"] == sizes


def last_checkpoint(storage: Storage) -> Checkpoint | None:
    """Return the newest whole checkpoint, or None; changes nothing."""
    steps = _steps(storage)
    return next((Checkpoint(step) for step in sorted(steps, reverse=True) if _is_whole(storage, step)), None)


def clear_torn(storage: Storage, kept: Checkpoint | None) -> None:
    """Remove what a kill left half written: all checkpoints after the one that is gone on from, and torn ones."""
    for step in _steps(storage):
        if kept is None or step > kept.step or not _is_whole(storage, step):
            storage.delete(_seal_of(step))
            storage.delete(Checkpoint(step).folder)
    storage.delete(STAGED_FINAL)


def _steps(storage: Storage) -> set[int]:
    folders = {name.split("/")[1] for name in storage.listing(CHECKPOINTS)}
    numbers = {each.removeprefix(_PREFIX).removesuffix(".json") for each in folders}
    return {int(number) for number in numbers if number.isdecimal()}


def clear_old(storage: Storage, kept: int = KEPT) -> None:
    """Remove all checkpoints but the newest ones."""
    for step in sorted(_steps(storage))[:-kept]:
        storage.delete(_seal_of(step))
        storage.delete(Checkpoint(step).folder)


def clear_seals(storage: Storage) -> None:
    """Remove the seals of checkpoints that the library has removed."""
    for step in _steps(storage):
        if not storage.listing(Checkpoint(step).folder):
            storage.delete(_seal_of(step))


def check_run(
    storage: Storage, record: Mapping[str, Any], config: Settings, free: Sequence[str], *, resume: bool
) -> None:
    """See that a run may be begun, or gone on with, in a folder.

    Args:
        storage: the folder.
        record: what ``run.json`` is going to say.
        config: of the run.
        free: settings that may differ from those that it was begun with.
        resume: whether it is to be gone on with.

    Raises:
        TrainingError: it may not.
    """
    where = storage.address().rstrip("/")
    entries = [name for name in storage.listing() if name != CHECK_PICTURE]
    if not resume:
        if entries:
            raise TrainingError(
                f"{where} holds {entries[0]}, expected an empty folder; go on with that run with --resume, or choose "
                "another --out"
            )
        return
    if storage.stat(RUN) is None:
        return  # killed before its first write: begun anew
    then = storage.read_json(RUN)
    differing = differing_fields(then["config"], config, free)
    if differing:
        name = differing[0]
        raise TrainingError(
            f"{where} was begun with {name} {then['config'].get(name)!r}, found {getattr(config, name)!r}; give the "
            "same settings to go on with it, or choose another --out"
        )
    for name, what in (("dataset_digest", "dataset"), ("model_revision", "model")):
        if then.get(name) != record.get(name):
            raise TrainingError(
                f"{where} was begun with another content of the {what} ({then[name]}), found {record[name]}; restore "
                "it to go on, or choose another --out"
            )


def read_metrics(storage: Storage) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl``; one that a kill tore at the end is left out."""
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
    """Forget the lines of updates after ``last``, which will be made again; before the first one, all of them."""
    kept = [record for record in read_metrics(storage) if last and record["step"] <= last]
    if storage.stat(METRICS) is not None:
        storage.write_bytes(METRICS, "".join(json.dumps(record) + "\n" for record in kept).encode())


def save_final(
    storage: Storage, model: Any, processor: Any, card: str, source: Mapping[str, bytes], name: str = FINAL
) -> None:
    """Put model, processor and card in the place of ``final``, or of another folder, in one step.

    Args:
        storage: the run's folder.
        model: with merged adapters, if it had any.
        processor: of the model.
        card: text of its README.md.
        source: further files of the model it was trained from, by name, for readers that look for them (the video
            part of a processor); none replaces a file that is saved here.
        name: of the folder.
    """
    storage.delete(STAGED_FINAL)
    folder = str(storage.local_path(STAGED_FINAL))
    try:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    except OSError as error:
        raise TrainingError(
            f"cannot write {folder}: {error.strerror or error}; free some space and run the same command with --resume"
        ) from error
    for file, content in source.items():
        if storage.stat(f"{STAGED_FINAL}/{file}") is None:
            storage.write_bytes(f"{STAGED_FINAL}/{file}", content)
    storage.write_bytes(f"{STAGED_FINAL}/README.md", card.encode())
    os.sync()
    storage.replace_folder(STAGED_FINAL, name, storage.folder_id(STAGED_FINAL))


def further_files(model: str) -> dict[str, bytes]:
    """Return the files of a local model that its readers look for and that saving it again would lose."""
    if not is_local(model):
        return {}
    source = open_storage(FollowedPath(model))  # the hub's cache is made of links
    names = ("video_preprocessor_config.json", "generation_config.json")
    return {name: source.read_bytes(name) for name in names if source.stat(name) is not None}
