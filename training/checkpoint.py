"""What a run leaves on disk, and which of it counts after a kill.

``OUT/checkpoints/checkpoint-N`` is written by the library, file by file; it counts once ``OUT/checkpoints/N.json``,
which lists its files and their sizes, has been written after it. ``OUT/final`` appears in one step, whole.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import TrainingError
from ..storage import Storage

CHECKPOINTS = "checkpoints"
FINAL, STAGED_FINAL = "final", ".final"
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


def clear_seals(storage: Storage) -> None:
    """Remove the seals of checkpoints that the library has removed."""
    for step in _steps(storage):
        if not storage.listing(Checkpoint(step).folder):
            storage.delete(_seal_of(step))


def save_final(storage: Storage, model: Any, processor: Any, card: str, source: Mapping[str, bytes]) -> None:
    """Put model, processor and card in the place of ``final``, in one step.

    Args:
        storage: the run's folder.
        model: with merged adapters, if it had any.
        processor: of the model.
        card: text of its README.md.
        source: further files of the model it was trained from, by name, for readers that look for them (the video
            part of a processor); none replaces a file that is saved here.
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
    for name, content in source.items():
        if storage.stat(f"{STAGED_FINAL}/{name}") is None:
            storage.write_bytes(f"{STAGED_FINAL}/{name}", content)
    storage.write_bytes(f"{STAGED_FINAL}/README.md", card.encode())
    os.sync()
    storage.replace_folder(STAGED_FINAL, FINAL, storage.mark(STAGED_FINAL))
