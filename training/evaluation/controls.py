"""Controls of an evaluation: right replies, and pictures that are blank or of another episode.

A model that uses the pictures loses accuracy when they are blank or belong to another episode, the
text unchanged; a model that only reads the log is unaffected.
"""

import io
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ...core.errors import ImageError
from ...core.identity import below, derive_seed
from ...core.images import MAX_PIXELS, encode_png
from .items import Item, Truth

# Pictures


def blank(picture: bytes) -> bytes:
    """Return a black picture of the same size, which has the same number of image tokens.

    Raises:
        ImageError: the bytes are not a picture, or the picture is too large.
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
    """Return for each record the index of the record whose collage it gets, which has a different level.

    The partner has the same environment and length if possible, so that the number of tiles reveals nothing; otherwise
    it is any record of the environment with a different level. Every collage is used about equally often. A record
    whose environment has no other level keeps its own.

    Args:
        records: rows with ``env`` and ``num_steps``.
        levels: canonical level of each record.
        seed: seed of the order in which partners are assigned.
    """
    order = list(range(len(records)))
    rng = random.Random(derive_seed("exchange", seed))
    for last in range(len(order) - 1, 0, -1):
        other = below(rng, last + 1)
        order[last], order[other] = order[other], order[last]
    partners = list(range(len(records)))
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index in order:
        groups.setdefault((records[index]["env"], records[index]["num_steps"]), []).append(index)
    by_env: dict[Any, list[int]] = {}
    for index in order:
        by_env.setdefault(records[index]["env"], []).append(index)
    for (env, _), group in groups.items():
        for position, index in enumerate(group):
            same_length = (group[(position + step) % len(group)] for step in range(1, len(group)))
            candidates = itertools.chain(same_length, by_env[env])
            partners[index] = next((each for each in candidates if levels[each] != levels[index]), index)
    return partners


# Replies


def locate_reply(step: int | None, mode: str | None) -> str:
    """Return a reply to a question ``locate`` or ``twin``."""
    return json.dumps({"pivot_step": step, "failure_mode": mode})


def safe_reply(actions: Sequence[str]) -> str:
    """Return a reply to a question ``safe``."""
    return json.dumps({"safe_actions": list(actions)})


def true_reply(item: Item, truth: Truth) -> str:
    """Return the reply that is right."""
    if item.question in ("twin", "locate"):
        return locate_reply(truth.pivot_step, truth.failure_mode)
    if item.question == "safe":
        return safe_reply(truth.safe_actions)
    return json.dumps({"reach": list(map(float, truth.within_reach))})
