"""Controls of an evaluation: scripted stand-ins for a model, and pictures that are blank or of another episode.

A stand-in knows every truth, guesses, or mixes both; it writes replies like a model, so that the figures can be checked
from end to end. A model that uses the pictures loses accuracy when they are blank or belong to another episode, the
text unchanged; a model that only reads the log is unaffected.
"""

import io
import itertools
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ...core.errors import ConfigError, ImageError
from ...core.identity import below, derive_seed
from ...core.images import MAX_PIXELS, encode_png
from .items import Benchmark, Item, Truth
from .predictions import Prediction

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


# Stand-ins


class StandIn(ABC):
    """Scripted answers to the items of a benchmark."""

    @abstractmethod
    def reply(self, item: Item) -> str:
        """Return the reply to an item; the same item always gets the same reply."""

    def predict(self, item: Item) -> Prediction:
        """Return the row about an item."""
        return Prediction(item.item_id, reply=self.reply(item))


def locate_reply(step: int | None, mode: str | None) -> str:
    """Return a reply to a question ``locate``."""
    return json.dumps({"pivot_step": step, "failure_mode": mode})


def safe_reply(action: str) -> str:
    """Return a reply to a question ``safe``."""
    return json.dumps({"safe_action": action})


def true_reply(item: Item, truth: Truth) -> str:
    """Return the reply that is right."""
    if item.question == "locate":
        return locate_reply(truth.pivot_step, truth.failure_mode)
    if item.question == "safe":
        return safe_reply(truth.safe_actions[0])
    return json.dumps({"reach": list(map(float, truth.within_reach))})


def draw(item: Item, *purpose: str | int) -> random.Random:
    """Return a random generator that depends on the item and a purpose alone."""
    return random.Random(derive_seed("stand-in", item.item_id, *purpose))


class Oracle(StandIn):
    """Gives the right reply."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._truths = benchmark.truths

    def reply(self, item: Item) -> str:
        """Return the right reply."""
        return true_reply(item, self._truths[item.item_id])

    def predict(self, item: Item) -> Prediction:
        """Return the row about an item; of ``credit`` with values that rank every state, which no reply holds."""
        if item.question != "credit":
            return super().predict(item)
        truth = self._truths[item.item_id]
        return Prediction(
            item.item_id,
            credit=tuple(-1.0 if step == truth.pivot_step else 0.0 for step in range(item.num_steps)),
            value=tuple(-float(item.horizon + 1 if need is None else need) for need in truth.need),
            reach=tuple(map(float, truth.within_reach)),
        )


class Uniform(StandIn):
    """Guesses: every step and every mode alike, every offered action alike, every probability alike."""

    def __init__(self, _: Benchmark) -> None: ...

    def reply(self, item: Item) -> str:
        """Return a random reply."""
        rng = draw(item, "uniform")
        if item.question == "locate":
            step = below(rng, item.num_steps + 1)
            mode = item.choices[below(rng, len(item.choices))]
            return locate_reply(*((None, None) if step == item.num_steps else (step, mode)))
        if item.question == "safe":
            return safe_reply(item.choices[below(rng, len(item.choices))])
        return json.dumps({"reach": [round(rng.random(), 3) for _ in range(item.num_steps)]})


class Mixture(StandIn):
    """Guesses instead of knowing, in a share of the items; those of a smaller share are among those of a larger one."""

    def __init__(self, benchmark: Benchmark, rate: float) -> None:
        self._rate = rate
        self._oracle, self._uniform = Oracle(benchmark), Uniform(benchmark)

    def _chosen(self, item: Item) -> StandIn:
        return self._uniform if draw(item, "mixture").random() < self._rate else self._oracle

    def reply(self, item: Item) -> str:
        """Return the right reply or a random one."""
        return self._chosen(item).reply(item)

    def predict(self, item: Item) -> Prediction:
        """Return the right row or a random one."""
        return self._chosen(item).predict(item)


STAND_INS: Mapping[str, Callable[[Benchmark], StandIn]] = {"oracle": Oracle, "uniform": Uniform}


def stand_in(name: str, benchmark: Benchmark) -> StandIn:
    """Return a stand-in by its name: ``oracle``, ``uniform``, or ``mixture-RATE`` with the share of guesses.

    Raises:
        ConfigError: the name is unknown.
    """
    kind, _, rate = name.partition("-")
    if name in STAND_INS:
        return STAND_INS[name](benchmark)
    try:
        share = float(rate) if kind == "mixture" else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(
            f"--stand-in: found {name!r}, expected oracle, uniform, or mixture-RATE with a rate of 0 to 1"
        )
    return Mixture(benchmark, share)
