"""Collages and panels of a shard: the dataset's own pictures, and composed ones for labels outside the dataset."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from ...collage import collage, panel
from ...core.errors import PivotError
from ...datasets.store.config import Shard
from ...datasets.store.dataset_rows import FrameReader, dataset_file, drawn_tiles
from ...datasets.store.parquet import read_table
from ...datasets.store.schema import DATASET
from ...datasets.store.split import SIDES
from ...datasets.store.store import DATASET_FOLDER, Store

Record = dict[str, Any]


class Collages:
    """The collages and panels of one shard, read or composed one at a time."""

    def __init__(self, store: Store, shard: Shard, frames: pa.Table) -> None:
        """Take the shard's frames: id, format and image."""
        self._store, self._shard, self._frames = store, shard, frames

    def picture(self, kind: str, steps: Sequence[Record], label: Record) -> bytes | None:
        """Return the encoded ``collage`` or ``panel`` of an episode; None where a frame cannot be decoded."""
        stored = self._stored.get(label["episode_id"])
        if stored is not None:
            return stored[kind]
        try:
            tiles = drawn_tiles(self._shard.env, list(steps), self._reader)
            pixels = (
                collage(tiles.frames, tiles.labels) if kind == "collage" else panel(tiles.steps, label["pivot_step"])
            )
            return self._reader.image(pixels, steps[0]["frame_id"])["bytes"]
        except (PivotError, ValueError):
            return None

    @cached_property
    def _reader(self) -> FrameReader:
        return FrameReader(self._frames)

    @cached_property
    def _stored(self) -> dict[str, dict[str, bytes | None]]:
        """Pictures of the dataset by episode."""
        listed = self._store.manifest()
        files = [dataset_file(DATASET_FOLDER, DATASET, self._shard, side) for side in SIDES]
        tables = [
            read_table(self._store.storage, file, DATASET, ["episode_id", "images", "panel"])
            for file in files
            if file in listed
        ]
        return {
            row["episode_id"]: {"collage": row["images"][0]["bytes"], "panel": row["panel"]["bytes"]}
            for table in tables
            for row in table.to_pylist()
            if row["images"] and row["panel"]
        }
