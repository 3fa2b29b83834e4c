"""The side of every record of a dataset: training or validation.

Split by ``task``, the side of a record is a stable hash of its canonical level, so it never changes as a store grows
and no level is on both sides even under two task ids. Split by ``episode``, a seeded draw takes exactly
``round(0.1 n)`` records.
"""

import hashlib
import random
from collections.abc import Collection, Sequence

from ...core.identity import derive_seed, sample_below

TRAIN, VALIDATION = "train", "validation"
SIDES = (TRAIN, VALIDATION)
_BUCKETS = 1 << 32


def level_position(canonical_level: str) -> float:
    """Place a level on [0, 1); levels below the validation fraction are held out."""
    head = hashlib.sha256(canonical_level.encode()).digest()[:4]
    return int.from_bytes(head, "big") / _BUCKETS


def side_by_hash(level: str, fraction: float, *, moved: bool = False) -> str:
    """Return the split of a canonical level; ``moved`` puts it in the other one."""
    return VALIDATION if (level_position(level) < fraction) != moved else TRAIN


def moved_level(levels: Collection[str], fraction: float) -> str | None:
    """Return the level that has to change its side so that both have one: the nearest to the boundary, or None."""
    if len({*levels}) < 2 or len({side_by_hash(level, fraction) for level in levels}) == len(SIDES):
        return None
    nearest = max if side_by_hash(next(iter(levels)), fraction) == VALIDATION else min
    return nearest(levels, key=lambda level: (level_position(level), level))


def split_by_task(levels: Sequence[str], fraction: float) -> list[str]:
    """Return the side of each record, given its canonical level.

    At least one record lands on each side when there are two levels or more: the level nearest the boundary is moved.
    """
    moved = moved_level(levels, fraction)
    return [side_by_hash(level, fraction, moved=level == moved) for level in levels]


def split_by_episode(count: int, fraction: float, seed: int, env: str) -> list[str]:
    """Return the side of each of ``count`` records: ``round(fraction * count)`` are held out, at least one a side."""
    held_out_count = round(fraction * count)
    if count > 1:
        held_out_count = min(max(held_out_count, 1), count - 1)
    held_out = set(sample_below(random.Random(derive_seed("split", seed, env)), count, held_out_count))
    return [VALIDATION if index in held_out else TRAIN for index in range(count)]
