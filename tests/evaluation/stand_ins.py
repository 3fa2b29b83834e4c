"""Scripted answers to the items of a benchmark, in place of a model: all right, guessed, or a mixture of both."""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from pivot.core.identity import below, derive_seed
from pivot.training.evaluation.controls import locate_reply, safe_reply, true_reply
from pivot.training.evaluation.items import QUESTIONS, VERSION, Benchmark, Item
from pivot.training.evaluation.predictions import Header, Prediction


class StandIn(ABC):
    """Scripted answers to the items of a benchmark."""

    @abstractmethod
    def reply(self, item: Item) -> str:
        """Return the reply to an item; the same item always gets the same reply."""

    def predict(self, item: Item) -> Prediction:
        """Return the row about an item."""
        return Prediction(item.item_id, reply=self.reply(item))


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
    """Guesses every step, mode, set of actions and probability with equal chance."""

    def __init__(self, _: Benchmark) -> None: ...

    def reply(self, item: Item) -> str:
        """Return a random reply."""
        rng = draw(item, "uniform")
        if item.question in ("twin", "locate"):
            step = below(rng, item.num_steps + 1)
            mode = item.choices[below(rng, len(item.choices))]
            return locate_reply(*((None, None) if step == item.num_steps else (step, mode)))
        if item.question == "safe":
            return safe_reply([action for action in item.choices if rng.random() < 0.5])
        return json.dumps({"reach": [round(rng.random(), 3) for _ in range(item.num_steps)]})


class Mixture(StandIn):
    """Guesses in a share of the items; the items of a smaller share are among those of a larger one."""

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


def submit(path: Path, benchmark: Benchmark, kind: Callable[[Benchmark], StandIn], name: str) -> Path:
    """Write the predictions of a stand-in to a file."""
    scripted = kind(benchmark)
    header = Header(benchmark.fingerprint, name, VERSION, QUESTIONS, tuple(benchmark.environments))
    rows = [scripted.predict(item) for item in benchmark.items.values()]
    path.write_text("".join(each.line() for each in (header, *rows)), encoding="utf-8")
    return path
