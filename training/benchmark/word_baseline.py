"""A baseline for logs with thoughts: naive Bayes over the words that the agent wrote before each action."""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import log

from ...datasets.predictors import Guess, LoggedFailure, Predictor

_WORD = re.compile(r"\w+")


def words_of(failure: LoggedFailure, t: int) -> frozenset[str]:
    """Return the words of the thought at a step, in lower case; empty without a thought."""
    return frozenset(_WORD.findall(str(failure.infos[t].get("thought", "")).lower()))


def fit_words(train: Sequence[LoggedFailure]) -> Predictor:
    """Guess the step whose words, and whose index, distinguish it most as a pivot; its words name the mode."""
    here, elsewhere = _Counts(), _Counts()
    modes: dict[Hashable, _Counts] = {}
    for each in train:
        for t in range(len(each.actions)):
            is_pivot = t == each.pivot_step
            (here if is_pivot else elsewhere).add({*words_of(each, t), t})
        modes.setdefault(each.failure_mode, _Counts()).add(words_of(each, each.pivot_step))

    def predict(failure: LoggedFailure) -> Guess:
        scores = [
            here.log_rate({*words_of(failure, t), t}) - elsewhere.log_rate({*words_of(failure, t), t})
            for t in range(len(failure.actions))
        ]
        step = max(range(len(scores)), key=scores.__getitem__)
        return Guess({step: 1.0}, _likeliest(modes, words_of(failure, step)))

    return predict


class _Counts:
    """Number of thoughts of one class, and of those with each word."""

    def __init__(self) -> None:
        self.total = 0
        self._with: Counter[Hashable] = Counter()

    def add(self, words: Collection[Hashable]) -> None:
        self.total += 1
        self._with.update(words)

    def log_rate(self, words: Collection[Hashable]) -> float:
        """Return the logarithm of the probability of some words, each with one thought more with and without it."""
        return sum(log((self._with[word] + 1) / (self.total + 2)) for word in sorted(words, key=str))


def _likeliest(modes: Mapping[Hashable, _Counts], words: frozenset[str]) -> str:
    return str(max(sorted(modes, key=str), key=lambda mode: log(modes[mode].total) + modes[mode].log_rate(words)))
