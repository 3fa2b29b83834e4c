"""Planted changes of what the Analyzer sees: collages blanked, or exchanged between records, the text left alone.

A model that looks at the pictures must fall when they are taken away or belong to another episode; one that reads the
log alone cannot even notice. So the difference is the proof of seeing, at test time and for a model trained on blanks.
"""

import io
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from PIL import Image

from ...errors import ImageError
from ...identity import below, derive_seed
from ...images import MAX_PIXELS, encode_png
from .config import Pictures

PICTURES: tuple[Pictures, ...] = get_args(Pictures)


def blank(picture: bytes) -> bytes:
    """Return a black picture of the same size, which costs the model as many tokens and says nothing.

    Raises:
        ImageError: the bytes are no picture, or one that is too large.
    """
    try:
        with Image.open(io.BytesIO(picture)) as opened:
            width, height = opened.size
    except OSError as error:
        raise ImageError(f"cannot read the size of a picture of {len(picture)} bytes: {error}") from error
    if width * height > MAX_PIXELS:
        raise ImageError(f"picture of {width}x{height} pixels is too large: at most {MAX_PIXELS} are read")
    return encode_png(np.zeros((height, width, 3), np.uint8))


def exchanged(records: Sequence[Mapping[str, Any]], levels: Sequence[str], seed: int = 0) -> list[int]:
    """Return for each record the index of the one whose collage it gets, always that of another level.

    A collage goes to a record of the same environment and length where there is one of another level, so that the
    number of tiles gives nothing away; otherwise to any other level of the environment. Every collage is used about
    equally often. A record whose environment has no other level keeps its own.

    Args:
        records: rows with ``env`` and ``num_steps``.
        levels: the canonical level of each.
        seed: decides the order in which partners are looked for.
    """
    order = list(range(len(records)))
    rng = random.Random(derive_seed("exchange", seed))
    for last in range(len(order) - 1, 0, -1):
        place = below(rng, last + 1)
        order[last], order[place] = order[place], order[last]
    partners = list(range(len(records)))
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index in order:
        groups.setdefault((records[index]["env"], records[index]["num_steps"]), []).append(index)
    by_env: dict[Any, list[int]] = {}
    for index in order:
        by_env.setdefault(records[index]["env"], []).append(index)
    for (env, _), group in groups.items():
        for place, index in enumerate(group):
            beside = (group[(place + step) % len(group)] for step in range(1, len(group)))
            candidates = itertools.chain(beside, by_env[env])
            partners[index] = next((each for each in candidates if levels[each] != levels[index]), index)
    return partners
