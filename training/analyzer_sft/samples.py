"""Records of a dataset as training samples: read, checked one by one, and named by file and row.

A source is a store (its dataset), a dataset folder as the export wrote it, or a hub id. Samples are views of Arrow
tables; with ``streaming`` no side is held in memory. What is wrong is a :class:`~pivot.errors.TrainingError` that names
the file, the row and the remedy; nothing is skipped and nothing is guessed.
"""

import io
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ...datasets.parquet import read_table
from ...datasets.schema import DATASET, TableSchema
from ...datasets.split import TRAIN, VALIDATION
from ...errors import StoreError, TrainingError
from ...identity import derive_seed
from ...images import MAX_PIXELS, readable_formats
from ...labeling.vocabulary import Vocabulary
from ...storage import Storage
from ..records import ALL, REBUILD, check_row, find_files, rows_of, target_text
from ..wording import prompt_in_words, target_in_words

COLUMNS = (
    *("episode_id", "env", "task_id", "images", "prompt", "completion", "pivot_step", "failure_mode"),
    *("failure_reason", "actions", "initial_state", "horizon", "num_steps"),
)
"""What training and evaluation read of a record."""
SCHEMA = TableSchema(DATASET.name, DATASET.doc, tuple(DATASET.only(*COLUMNS)))

MIN_SIDE, MAX_SIDE = 32, 16_384
"""Pixels: a smaller picture has no room for one image token, a larger one is no collage of ours."""
SHUFFLE_BUFFER = 512
"""Records that a stream holds to mix them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One record: what the Analyzer is shown, and what it shall answer."""

    place: str
    """File and row, for messages."""
    episode_id: str
    env: str
    prompt: tuple[dict[str, Any], ...]
    """Chat messages; an image part only marks the place."""
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
            TrainingError: the bytes are no picture, or one of a size that cannot be a collage.
        """
        formats = [each.pillow for each in readable_formats().values()]
        try:
            with Image.open(io.BytesIO(self.image), formats=formats) as opened:
                width, height = opened.size
                fits = min(width, height) >= MIN_SIDE and max(width, height) <= MAX_SIDE
                picture = opened.convert("RGB") if fits and width * height <= MAX_PIXELS else None
        except Exception as error:  # untrusted bytes make decoders fail in many ways; the reason travels on
            raise TrainingError(f"{self.place}: its picture cannot be read ({error}); {REBUILD}") from error
        if picture is None:
            raise TrainingError(
                f"{self.place}: found a picture of {width}x{height} pixels, expected sides of {MIN_SIDE} to {MAX_SIDE} "
                f"and at most {MAX_PIXELS} pixels; {REBUILD}"
            )
        return picture


def read_row(row: Mapping[str, Any], place: str, env: str | None) -> Sample:
    """Check a row of the ``dataset`` table and return it as a sample.

    Args:
        row: the columns of :data:`COLUMNS`.
        place: file and row, for messages.
        env: environment whose config holds the row; None where a config mixes environments.

    Raises:
        TrainingError: the row is invalid.
    """
    check_row(row, place, env)
    return Sample(
        place=place,
        episode_id=row["episode_id"],
        env=row["env"],
        prompt=tuple(row["prompt"]),
        image=row["images"][0]["bytes"],
        target=target_text(row),
        pivot_step=row["pivot_step"],
        failure_mode=row["failure_mode"],
        failure_reason=row["failure_reason"],
        actions=tuple(row["actions"]),
        initial_state=row["initial_state"],
        num_steps=row["num_steps"],
    )


def in_words(sample: Sample, vocabulary: Vocabulary) -> Sample:
    """Return a sample whose prompt and target name failure modes in the words of ``vocabulary``.

    Raises:
        TrainingError: the prompt does not list them as this version does.
    """
    prompt = prompt_in_words(sample.env, sample.prompt, vocabulary, sample.place)
    return replace(
        sample, prompt=prompt, target=target_in_words(sample.env, sample.target, sample.failure_mode, vocabulary)
    )


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a side."""

    name: str
    """As messages name it."""
    env: str | None
    table: pa.Table


class Samples(Sequence[Sample]):
    """The samples of one side, in the order of the files; a sample is read when it is asked for."""

    def __init__(self, shards: Sequence[Shard], vocabulary: Vocabulary | None = None) -> None:
        """View the rows of ``shards``; ``vocabulary`` None leaves failure modes in the dataset's words."""
        self._shards = tuple(shards)
        self._vocabulary: Vocabulary | None = vocabulary
        self._ends = list(accumulate(shard.table.num_rows for shard in shards))

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
        place = bisect_right(self._ends, index)
        shard = self._shards[place]
        row = index - (self._ends[place] - shard.table.num_rows)
        (values,) = shard.table.slice(row, 1).to_pylist()
        sample = read_row(values, f"{shard.name}, row {row}", shard.env)
        return sample if self._vocabulary is None else in_words(sample, self._vocabulary)


class Stream:
    """The samples of one side, read again from the files with every pass and mixed within a buffer."""

    def __init__(
        self, files: Sequence[tuple[str, str]], storage: Storage, seed: int, vocabulary: Vocabulary | None = None
    ) -> None:
        """Name the files, each with the environment it may hold."""
        self._files = tuple(files)
        self._storage = storage
        self._seed = seed
        self._vocabulary: Vocabulary | None = vocabulary

    def __iter__(self) -> Iterator[Sample]:
        """Every sample once, in the order of the files."""
        for name, env in self._files:
            yield from self._file(name, env)

    def epoch(self, number: int) -> Iterator[Sample]:
        """Every sample once, mixed: a function of seed and epoch alone."""
        rng = random.Random(derive_seed("stream", self._seed, number))
        files = sorted(self._files, key=lambda file: derive_seed("stream", self._seed, number, file[0]))
        held: list[Sample] = []
        for name, env in files:
            for sample in self._file(name, env):
                held.append(sample)
                if len(held) == SHUFFLE_BUFFER:
                    place = int(rng.random() * len(held))
                    held[place], held[-1] = held[-1], held[place]
                    yield held.pop()
        while held:
            place = int(rng.random() * len(held))
            held[place], held[-1] = held[-1], held[place]
            yield held.pop()

    def _file(self, name: str, env: str) -> Iterator[Sample]:
        for place, values in rows_of(self._storage, name, COLUMNS):
            sample = read_row(values, place, env)
            yield sample if self._vocabulary is None else in_words(sample, self._vocabulary)


@dataclass(frozen=True)
class TrainingData:
    """Both sides of a dataset."""

    source: str
    """As the user named it."""
    digest: str
    """Of the manifest, or of the files' content."""
    train: Sequence[Sample] | Stream
    validation: Sequence[Sample]

    @cached_property
    def environments(self) -> tuple[str, ...]:
        """The environments on the validation side, sorted."""
        return tuple(sorted({sample.env for sample in self.validation}))


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
        streaming: read the training side from the files with every epoch, instead of holding it.
        seed: of the order in which a stream mixes its records.
        vocabulary: words for failure modes; None leaves them as they are.

    Raises:
        TrainingError: there is no such dataset, it lacks what is asked for, or a file cannot be read.
    """
    files = find_files(source, configs)
    storage, by_side = files.storage, files.by_side
    validation = Samples([_shard(storage, name, env) for name, env in by_side[VALIDATION]], vocabulary)
    if streaming:
        train = Stream(by_side[TRAIN], storage, seed, vocabulary)
        rows = sum(_rows(storage, name) for name, _ in by_side[TRAIN])
    else:
        train = Samples([_shard(storage, name, env) for name, env in by_side[TRAIN]], vocabulary)
        rows = len(train)
    for side, count in ((TRAIN, rows), (VALIDATION, len(validation))):
        if not count:
            raise TrainingError(
                f"{source}: the {side} side of config {', '.join(configs)} holds no record, expected at least one; "
                "build more levels (pivot build --tasks), so that both sides get some"
            )
    return TrainingData(source, files.digest, train, validation)


def _shard(storage: Storage, name: str, env: str | None) -> Shard:
    try:
        return Shard(storage.address(name), env, read_table(storage, name, SCHEMA, COLUMNS))
    except StoreError as error:
        raise TrainingError(str(error)) from error


def _rows(storage: Storage, name: str) -> int:
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            return file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise TrainingError(f"{storage.address(name)} cannot be read as Parquet ({error}); {REBUILD}") from error


def epoch_order(count: int, batch: int, seed: int, epoch: int) -> list[int]:
    """Return which records an epoch trains on, in order: a permutation without its last, short batch."""
    rng = np.random.Generator(np.random.PCG64(derive_seed("epoch", seed, epoch)))
    return rng.permutation(count)[: count - count % batch].tolist()
