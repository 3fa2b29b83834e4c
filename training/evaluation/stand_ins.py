"""Scripted stand-ins for a model: one that knows every truth, one that guesses, and mixtures of the two.

They write replies like a model, so that the figures of the benchmark can be checked from end to end.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from ...errors import ConfigError
from ...identity import below, derive_seed
from .items import Benchmark, Item, Truth
from .predictions import Prediction


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


def reach_reply(pivot: int | None, steps: int) -> str:
    """Return a reply to a question ``credit`` of an episode that was lost at a pivot, or never."""
    return json.dumps({"reach": [1.0 if pivot is None or step < pivot else 0.0 for step in range(steps)]})


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
