"""Records of a dataset as training samples, each checked when it is read.

A source is a store, a dataset folder as the export wrote it, or a hub id. Samples are views of Arrow tables; with
``streaming``, the training split is read from its files in every epoch. An invalid record is a
:class:`~pivot.core.errors.TrainingError` that names file, row and remedy; no record is skipped.
"""

import io
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ...core.errors import StoreError, TrainingError
from ...core.identity import derive_seed
from ...core.images import MAX_PIXELS, readable_formats
from ...core.storage import Storage
from ...datasets.store.parquet import read_table
from ...datasets.store.schema import DATASET, TableSchema
from ...datasets.store.split import TRAIN, VALIDATION
from ...labeling.vocabulary import Vocabulary
from ..records import (
    ALL,
    REBUILD,
    absolute_source,
    check_row,
    find_files,
    prompt_in_words,
    rows_of,
    target_in_words,
    target_text,
)

COLUMNS = (
    *("episode_id", "env", "task_id", "images", "prompt", "completion", "pivot_step", "failure_mode"),
    *("failure_reason", "actions", "initial_state", "horizon", "num_steps"),
)
"""Columns of a sample."""
SCHEMA = TableSchema(DATASET.name, DATASET.doc, tuple(DATASET.only(*COLUMNS)))

MIN_SIDE, MAX_SIDE = 32, 16_384
"""Bounds of a collage's sides in pixels: a smaller picture has no room for an image token, and none is larger."""
SHUFFLE_BUFFER = 512
"""Records in the buffer in which a stream shuffles."""


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


def read_row(row: Mapping[str, Any], where: str, env: str, vocabulary: Vocabulary | None) -> Sample:
    """Check a row of the ``dataset`` table and return it as a sample.

    Args:
        row: the columns of :data:`COLUMNS`.
        where: file and row, for messages.
        env: environment whose config holds the row.
        vocabulary: label names of failure modes in prompt and target; None leaves them as they are.

    Raises:
        TrainingError: the row is invalid, or its prompt does not list the failure modes as this version does.
    """
    check_row(row, where, env)
    prompt, target = tuple(row["prompt"]), target_text(row)
    if vocabulary is not None:
        prompt = prompt_in_words(env, prompt, vocabulary, where)
        target = target_in_words(env, target, row["failure_mode"], vocabulary)
    return Sample(
        where=where,
        episode_id=row["episode_id"],
        env=row["env"],
        prompt=prompt,
        image=row["images"][0]["bytes"],
        target=target,
        pivot_step=row["pivot_step"],
        failure_mode=row["failure_mode"],
        failure_reason=row["failure_reason"],
        actions=tuple(row["actions"]),
        initial_state=row["initial_state"],
        num_steps=row["num_steps"],
    )


@dataclass(frozen=True)
class DatasetFile:
    """One Parquet file of a split, in memory."""

    address: str
    env: str
    table: pa.Table


class Samples(Sequence[Sample]):
    """The samples of a split, in the order of the files; each is read when it is indexed."""

    def __init__(self, files: Sequence[DatasetFile], vocabulary: Vocabulary | None = None) -> None:
        """View the rows of ``files``; ``vocabulary`` as in :func:`read_row`."""
        self._files = tuple(files)
        self._vocabulary: Vocabulary | None = vocabulary
        self._ends = list(accumulate(file.table.num_rows for file in files))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index %= len(self)
        number = bisect_right(self._ends, index)
        file = self._files[number]
        row = index - (self._ends[number] - file.table.num_rows)
        (values,) = file.table.slice(row, 1).to_pylist()
        return read_row(values, f"{file.address}, row {row}", file.env, self._vocabulary)


class Stream:
    """The samples of a split, read from the files in every pass and shuffled within a buffer."""

    def __init__(
        self, files: Sequence[tuple[str, str]], storage: Storage, seed: int, vocabulary: Vocabulary | None = None
    ) -> None:
        """Read ``files``, each with the environment of its records; ``vocabulary`` as in :func:`read_row`."""
        self._files, self._storage, self._seed = tuple(files), storage, seed
        self._vocabulary: Vocabulary | None = vocabulary

    def __iter__(self) -> Iterator[Sample]:
        """Yield every sample once, in the order of the files."""
        for name, env in self._files:
            yield from self._file(name, env)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Yield every sample once, in an order that is a function of seed and epoch."""
        rng = random.Random(derive_seed("stream", self._seed, number))
        files = sorted(self._files, key=lambda file: derive_seed("stream", self._seed, number, file[0]))
        buffer: list[Sample] = []

        def take() -> Sample:
            index = int(rng.random() * len(buffer))
            buffer[index], buffer[-1] = buffer[-1], buffer[index]
            return buffer.pop()

        for name, env in files:
            for sample in self._file(name, env):
                buffer.append(sample)
                if len(buffer) == SHUFFLE_BUFFER:
                    yield take()
        while buffer:
            yield take()

    def _file(self, name: str, env: str) -> Iterator[Sample]:
        for where, values in rows_of(self._storage, name, COLUMNS):
            yield read_row(values, where, env, self._vocabulary)


@dataclass(frozen=True)
class TrainingData:
    """Both splits of a dataset."""

    source: str
    """Address of the dataset, as the user wrote it."""
    digest: str
    """Digest of the manifest, or of the content of the files."""
    train: Sequence[Sample] | Stream
    validation: Sequence[Sample]
    address: str = ""
    """Address that names the dataset from every folder."""


def read_dataset(
    source: str,
    configs: Sequence[str] = (ALL,),
    *,
    streaming: bool = False,
    seed: int = 0,
    vocabulary: Vocabulary | None = None,
) -> TrainingData:
    """Open a dataset.

    Args:
        source: a store, a dataset folder, or a hub id.
        configs: environments to train on together, or ``all``.
        streaming: read the training split from its files in every epoch, instead of keeping it in memory.
        seed: seed of the order of a stream.
        vocabulary: label names of failure modes in prompts and targets; None leaves them as they are.

    Raises:
        TrainingError: the dataset does not exist, lacks a config or a split, or a file cannot be read.
    """
    files = find_files(source, configs)
    storage, by_side = files.storage, files.by_side
    validation = Samples([_read_file(storage, name, env) for name, env in by_side[VALIDATION]], vocabulary)
    if streaming:
        train = Stream(by_side[TRAIN], storage, seed, vocabulary)
        rows = sum(_rows(storage, name) for name, _ in by_side[TRAIN])
    else:
        train = Samples([_read_file(storage, name, env) for name, env in by_side[TRAIN]], vocabulary)
        rows = len(train)
    for side, count in ((TRAIN, rows), (VALIDATION, len(validation))):
        if not count:
            raise TrainingError(
                f"{source}: the {side} split of config {', '.join(configs)} holds no record, expected at least one; "
                "build more levels (pivot build --tasks), so that both splits get some"
            )
    return TrainingData(source, files.digest, train, validation, absolute_source(source))


def _read_file(storage: Storage, name: str, env: str) -> DatasetFile:
    try:
        return DatasetFile(storage.address(name), env, read_table(storage, name, SCHEMA, COLUMNS))
    except StoreError as error:
        raise TrainingError(str(error)) from error


def _rows(storage: Storage, name: str) -> int:
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            return file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise TrainingError(f"{storage.address(name)} cannot be read as Parquet ({error}); {REBUILD}") from error


def epoch_order(count: int, batch: int, seed: int, epoch: int) -> list[int]:
    """Return the indices of the records of an epoch in order: a permutation without its last, incomplete batch."""
    rng = np.random.Generator(np.random.PCG64(derive_seed("epoch", seed, epoch)))
    return rng.permutation(count)[: count - count % batch].tolist()
