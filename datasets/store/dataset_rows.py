"""Compose the rows that a trainer loads from stored rows: collages, panels, TRL parts, and whole episodes.

Everything is derived from one shard's stored rows; nothing is rolled out or labelled again. All environments share one
schema, so that their configs concatenate; a shard has a file on a side where it has rows there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...collage import Tiles, episode_tiles
from ...core.errors import StoreError
from ...core.images import codec, decode
from .config import RunConfig, Shard, environment
from .schema import DATASET, EPISODES, LABELS, TableSchema
from .splits import SIDES, TRAIN, VALIDATION, moved_level, side_by_hash, split_by_episode
from .store import Store
from .tables import Rows


def trainable(label: dict[str, Any], config: RunConfig) -> bool:
    """Whether a label's record belongs to the training set."""
    return label["accepted"] and (config.include_infeasible or not label["infeasible_at_start"])


@dataclass(frozen=True, slots=True)
class ShardSplit:
    """Facts of other shards that decide the splits of a shard's episodes; nearly always none."""

    moved: str | None = None
    """Split by task: the level that moves to the other split, because one split would otherwise be empty."""
    held_out: frozenset[int] | None = None
    """Split by episode: the indices of the validation records in the shard."""


def plan_split(store: Store) -> dict[Shard, ShardSplit]:
    """Return, for every labelled shard, the facts of other shards that its splits depend on.

    By task, the split of a level is a hash of it. Some shards suffice to see that both splits have records; a whole
    environment is read only if all records are in one split. By episode, the number of records in every shard decides.
    """
    plan: dict[Shard, ShardSplit] = {}
    for env in store.config.environments:
        shards = [shard for shard in store.config.shards() if shard.env == env]
        if store.config.split == "episode":
            plan |= _drawn_places(store, env, shards)
        else:
            levels: set[str] = set()
            for shard in shards:
                records = {*_records(store, shard)}
                levels.update(level for episode, level in _levels(store, shard).items() if episode in records)
                if len({side_by_hash(level, store.config.validation_fraction) for level in levels}) == len(SIDES):
                    break
            moved = moved_level(levels, store.config.validation_fraction)
            plan |= dict.fromkeys(shards, ShardSplit(moved=moved))
    return plan


def _drawn_places(store: Store, env: str, shards: Sequence[Shard]) -> dict[Shard, ShardSplit]:
    counts = [len(_records(store, shard)) for shard in shards]
    drawn = iter(split_by_episode(sum(counts), store.config.validation_fraction, store.config.seed, env))
    return {
        shard: ShardSplit(held_out=frozenset(place for place in range(count) if next(drawn) == VALIDATION))
        for shard, count in zip(shards, counts, strict=True)
    }


def _records(store: Store, shard: Shard) -> list[str]:
    """Ids of the episodes of a shard whose labels belong to the training set, in order."""
    labels = store.read(LABELS, shard, ["episode_id", "accepted", "infeasible_at_start"]).to_pylist()
    return [label["episode_id"] for label in labels if trainable(label, store.config)]


def _levels(store: Store, shard: Shard) -> dict[str, str]:
    """The canonical level of every episode of a shard, in order."""
    canonical: dict[str, str] = {}
    levels: dict[str, str] = {}
    for row in store.read(EPISODES, shard, ["episode_id", "initial_state"]).to_pylist():
        state = row["initial_state"]
        if state not in canonical:
            canonical[state] = environment(shard.env).canonical_state(state)
        levels[row["episode_id"]] = canonical[state]
    return levels


def shard_sides(store: Store, shard: Shard, split: ShardSplit) -> dict[str, str]:
    """Return the side of every episode of a shard.

    Trainable failures are split as the config asks; the other episodes, which only the whole-episode configs hold,
    follow their level.
    """
    fraction = store.config.validation_fraction
    sides = {
        episode: side_by_hash(level, fraction, moved=level == split.moved)
        for episode, level in _levels(store, shard).items()
    }
    if split.held_out is not None:
        records = _records(store, shard)
        sides |= {each: VALIDATION if place in split.held_out else TRAIN for place, each in enumerate(records)}
    return sides


KEPT_FRAMES = 256
"""Number of cached decoded frames: those of about two levels of rendered views, or a whole shard of puzzles."""


class FrameReader:
    """Decodes the stored frames of one shard; episodes come level by level, so each is decoded about once."""

    def __init__(self, frames: pa.Table) -> None:
        ids, images = frames["frame_id"].to_pylist(), frames["image"]
        rows = {name: row for row, name in enumerate(ids)}
        self._formats = dict(zip(ids, frames["format"].to_pylist(), strict=True))

        def encoded(frame_id: str) -> bytes:
            if frame_id not in rows:
                raise StoreError(f"the frame {frame_id!r} of a step is not stored; restore the store from a copy")
            return images[rows[frame_id]].as_py()

        self.encoded = encoded
        """Returns the stored bytes of a frame; StoreError for a frame of a step that is not stored."""
        self.pixels: Callable[[str], NDArray[np.uint8]] = lru_cache(KEPT_FRAMES)(lambda name: decode(encoded(name)))
        """Returns the decoded RGB of a frame, shape (height, width, 3); no cycle keeps the frames in memory."""

    def image(self, pixels: NDArray[np.uint8], frame_id: str) -> dict[str, Any]:
        """Return a picture composed of frames as an image cell, in the format of the frames."""
        return {"bytes": codec(self._formats[frame_id]).encode(pixels), "path": None}


def dataset_file(folder: str, schema: TableSchema, shard: Shard, side: str) -> str:
    """Return the path of one shard's file of a dataset config in one split, below ``folder``."""
    config_name = shard.env if schema is DATASET else f"{shard.env}_episodes"
    return f"{folder}/{config_name}/{side}-{shard.number:05d}.parquet"


def seen_frames(steps: Rows) -> list[str]:
    """Ids of the frames of an episode in order: the one before each action, then the terminal one."""
    return [*(step["frame_id"] for step in steps), *(step["next_frame_id"] for step in steps[-1:])]


def drawn_tiles(env: str, steps: Rows, frames: FrameReader) -> Tiles[NDArray[np.uint8]]:
    """The tiles of an episode's collage, decoded."""
    inside = [step["inside_frame_ids"] or () for step in steps]
    tiles = episode_tiles(environment(env).profile.tiles, seen_frames(steps), inside)
    return Tiles(tuple(map(frames.pixels, tiles.frames)), tiles.labels, tiles.places)
