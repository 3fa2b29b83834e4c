"""Records of a dataset as training samples, each checked when it is read.

A source is a store, or a dataset folder as the export wrote it. An invalid record is a
:class:`~pivot.core.errors.TrainingError` that names file, row and remedy; no record is skipped.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ...core.errors import TrainingError
from ...core.identity import derive_seed
from ...core.images import MAX_PIXELS, readable_formats
from ...datasets.store.splits import TRAIN, VALIDATION
from ...labeling.target import Vocabulary, parse_target
from ..records import ALL, REBUILD, Records, absolute_source, find_files, target_text

COLUMNS = (
    *("episode_id", "env", "env_config", "task_id", "images", "prompt", "completion", "pivot_step", "failure_mode"),
    *("failure_reason", "actions", "initial_state", "horizon", "num_steps"),
)
"""Columns of a sample."""
MIN_SIDE, MAX_SIDE = 32, 16_384
"""Bounds of a collage's sides in pixels: a smaller picture has no room for an image token, and none is larger."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One record: the Analyzer's input and its target."""

    where: str
    """File and row, for messages."""
    episode_id: str
    env: str
    prompt: tuple[dict[str, Any], ...]
    """Chat messages; a bare image part marks the position of the collage."""
    image: bytes
    """The encoded collage."""
    target: str
    pivot_step: int
    failure_mode: str
    failure_reason: str
    actions: tuple[str, ...]
    initial_state: str
    num_steps: int

    @property
    def picture(self) -> Image.Image:
        """The collage, RGB.

        Raises:
            TrainingError: the bytes are not a picture, or its size is out of bounds.
        """
        formats = [each.pillow for each in readable_formats().values()]
        try:
            with Image.open(io.BytesIO(self.image), formats=formats) as opened:
                width, height = opened.size
                fits = min(width, height) >= MIN_SIDE and max(width, height) <= MAX_SIDE
                picture = opened.convert("RGB") if fits and width * height <= MAX_PIXELS else None
        except Exception as error:  # decoders fail in many ways on untrusted bytes
            raise TrainingError(f"{self.where}: its picture cannot be read ({error}); {REBUILD}") from error
        if picture is None:
            raise TrainingError(
                f"{self.where}: found a picture of {width}x{height} pixels, expected sides of {MIN_SIDE} to {MAX_SIDE} "
                f"and at most {MAX_PIXELS} pixels; {REBUILD}"
            )
        return picture


def _samples(records: Records, side: str) -> Iterator[Sample]:
    """Yield the samples of a split in the order of its files."""
    same = ("episode_id", "env", "pivot_step", "failure_mode", "failure_reason", "initial_state", "num_steps")
    for name, env in records.files.by_side[side]:
        for where, row in records.rows_of(name, env, COLUMNS):
            yield Sample(
                where=where,
                prompt=tuple(row["prompt"]),
                image=row["images"][0]["bytes"],
                target=target_text(row),
                actions=tuple(row["actions"]),
                **{each: row[each] for each in same},
            )


@dataclass(frozen=True)
class TrainingData:
    """Both splits of a dataset."""

    source: str
    """Address of the dataset, as the user wrote it."""
    digest: str
    """Digest of the manifest, or of the content of the files."""
    train: Sequence[Sample]
    validation: Sequence[Sample]
    address: str = ""
    """Address that names the dataset from every folder."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Label names of failure modes in the targets."""
        named = ((each.failure_mode, parse_target(each.target).failure_mode) for each in self.train)
        return "paper" if any(mode != name for mode, name in named) else "certificate"


def read_dataset(source: str, configs: Sequence[str] = (ALL,)) -> TrainingData:
    """Read a dataset.

    Args:
        source: a store, or a dataset folder.
        configs: environments to train on together, or ``all``.

    Raises:
        TrainingError: the dataset does not exist, lacks a config or a split, or a file cannot be read.
    """
    files = find_files(source, configs)
    records = Records(source, ", ".join(configs), files)
    train, validation = (list(_samples(records, side)) for side in (TRAIN, VALIDATION))
    for side, samples in ((TRAIN, train), (VALIDATION, validation)):
        if not samples:
            raise TrainingError(
                f"{source}: the {side} split of config {records.config} holds no record, expected at least one; "
                "build more levels (pivot build --tasks), so that both splits get some"
            )
    return TrainingData(source, files.digest, train, validation, absolute_source(source))


def epoch_order(count: int, batch: int, seed: int, epoch: int) -> list[int]:
    """Return the indices of the records of an epoch in order: a permutation without its last, incomplete batch."""
    rng = np.random.Generator(np.random.PCG64(derive_seed("epoch", seed, epoch)))
    return rng.permutation(count)[: count - count % batch].tolist()
