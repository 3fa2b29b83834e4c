"""The baselines of the benchmark: predictors that read the log alone, fitted on the other half of the levels.

An episode may also have no pivot. A gate decides that first: it is fitted on all episodes of the other half, by
gradient boosting where learned baselines are wanted, else by the length of the episode.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from ...datasets.predictors import PREDICTORS, Guess, LoggedFailure, Predictor
from ...identity import below
from ..evaluation.baselines import GUESSING_LEVELS, LEARNED, PredictAll, can_be_sampled_by_class, fit_classes
from ..evaluation.level_posterior import Judgement, objection
from ..evaluation.log_features import LogFeatures
from .episodes import Certified
from .items import LOGS, QUESTIONS, Item, plugin_of
from .make import Made
from .predictions import Header, Prediction, Predictions
from .scores import score
from .stand_ins import draw, locate_reply, reach_reply, safe_reply
from .step_baseline import SEED, STEPS, Fitting, StepBaseline

_WORD = re.compile(r"\w+")

Gate = Callable[[Sequence[LoggedFailure]], list[bool]]
"""Decides for episodes whether they were lost."""


def log_of(item: Item) -> LoggedFailure:
    """Return an item as a predictor sees it, without any truth."""
    return LoggedFailure.of_record(
        {"env": plugin_of(item.env), "horizon": item.horizon, "actions": item.actions, "action_log": item.action_log}
        | {"pivot_step": 0, "failure_mode": ""}
    )


def measure_baselines(
    made: Made,
    *,
    learned: bool = True,
    begin: Callable[[str, int], Callable[[], None]] = lambda _stage, _count: lambda: None,
) -> list[dict[str, Any]]:
    """Return the results of all baselines on a benchmark, without intervals that a table does not show.

    Args:
        made: the benchmark and the episodes to fit on.
        learned: whether the learned baselines are fitted, too.
        begin: receives the name of the stage and its number of logs; returns a function to call per log.

    Raises:
        PluginError: a package of the learned baselines is not installed.
    """
    benchmark = made.benchmark
    rows_by_name: dict[str, dict[str, Prediction]] = {}
    advance = begin("baselines", len(benchmark.environments) * len(LOGS))
    for env in benchmark.environments:
        safe = _safe_counts(made.fitting[env])
        for kind in LOGS:
            items = [item for item in benchmark.items.values() if item.env == env and item.log == kind]
            episodes = [
                Fitting(each.logged(kind, benchmark.variant.thoughts), each.pivot_step is not None, each.turns)
                for each in made.fitting[env]
            ]
            if not any(each.lost for each in episodes):
                advance()
                continue
            fitting = [(each.log, each.lost) for each in episodes]
            test = [log_of(item) for item in items]
            lost = (fit_gate if learned else fit_length_gate)(fitting)(test)
            for name, answers in _guesses(test, lost, fitting, learned=learned).items():
                rows_by_name.setdefault(name, {}).update(
                    (item.item_id, Prediction(item.item_id, reply=_reply(item, answer, safe, name)))
                    for item, answer in zip(items, answers, strict=True)
                )
            for name, judge in _judges(episodes, learned=learned).items():
                rows_by_name.setdefault(name, {}).update(
                    (item.item_id, answer_of(item, judge(log), is_lost=is_lost))
                    for item, log, is_lost in zip(items, test, lost, strict=True)
                )
            advance()
    results: list[dict[str, Any]] = []
    for name, rows in rows_by_name.items():
        envs = tuple(
            env
            for env in benchmark.environments
            if all(item.item_id in rows for item in benchmark.items.values() if item.env == env)
        )
        if envs:
            header = Header(benchmark.fingerprint, name, questions=QUESTIONS, environments=envs)
            results.append(score(benchmark, Predictions(header, rows)))
    return results


def _guesses(
    test: Sequence[LoggedFailure],
    lost: Sequence[bool],
    fitting: Sequence[tuple[LoggedFailure, bool]],
    *,
    learned: bool,
) -> dict[str, list[Guess | None]]:
    """Return the guesses of each baseline about some episodes; None for "never lost"."""
    train = [each for each, was_lost in fitting if was_lost]
    fits: dict[str, Callable[[], PredictAll]] = {
        name: lambda fit=fit: _one_by_one(fit(train)) for name, fit in PREDICTORS.items()
    }
    if "thought" in train[0].infos[0]:
        fits["words"] = lambda: _one_by_one(fit_words(train))
    for name, learner in LEARNED.items() if learned else ():
        if len(train) >= learner.fewest:
            fits[name] = lambda learner=learner: learner.fit(train, SEED)
    guesses: dict[str, list[Guess | None]] = {
        name: [answer if is_lost else None for answer, is_lost in zip(fit()(test), lost, strict=True)]
        for name, fit in fits.items()
    }
    return {**guesses, "constant": [_most_frequent(fitting)] * len(test)}


Judge = Callable[[LoggedFailure], Judgement]
"""Judges every step of an episode that was lost."""


def _judges(episodes: Sequence[Fitting], *, learned: bool) -> dict[str, Judge]:
    """Return the baselines that answer every question by themselves."""
    lost = [each.log for each in episodes if each.lost]
    judges: dict[str, Judge] = {}
    if learned and len(lost) >= LEARNED["gradient boosting"].fewest:
        judges[STEPS] = StepBaseline(episodes).judge
    if objection(lost) is None:
        judges |= {name: fit(lost).judge for name, fit in GUESSING_LEVELS.items()}
    return judges


def answer_of(item: Item, said: Judgement, *, is_lost: bool) -> Prediction:
    """Return the answer to an item by a judgement; ``is_lost`` says whether its episode was lost at all."""
    pivot = int(said.pivot.argmax())
    if item.question == "locate":
        mode = said.mode if said.mode in item.choices else item.choices[0]
        return Prediction(item.item_id, reply=locate_reply(pivot, mode) if is_lost else locate_reply(None, None))
    if item.question == "safe":
        step = item.step or 0
        # The taken action was fatal.
        chances = {action: float(chance[step]) for action, chance in said.safe.items()} | {item.actions[step]: -1.0}
        return Prediction(
            item.item_id, reply=safe_reply(max(item.choices, key=lambda action: chances.get(action, 0.0)))
        )
    reach = said.reach if said.reach is not None else np.clip(1 - is_lost * np.cumsum(said.pivot), 0, 1)
    value = reach if said.need is None else -said.need
    return Prediction(
        item.item_id, credit=tuple((-said.pivot).tolist()), value=tuple(value.tolist()), reach=tuple(reach.tolist())
    )


def _most_frequent(fitting: Sequence[tuple[LoggedFailure, bool]]) -> Guess | None:
    """Return the most frequent answer, which sees nothing; None for "never lost"."""
    answers = Counter((each.pivot_step, each.failure_mode) if lost else None for each, lost in fitting)
    answer = max(answers, key=lambda each: (answers[each], str(each)))
    return None if answer is None else Guess({answer[0]: 1.0}, answer[1])


def _one_by_one(predictor: Callable[[LoggedFailure], Guess]) -> PredictAll:
    return lambda failures: [predictor(each) for each in failures]


def fit_length_gate(fitting: Sequence[tuple[LoggedFailure, bool]]) -> Gate:
    """Return a gate that says what most episodes of the same length were; lost for a new length or a tie."""
    counts: Counter[int] = Counter()
    for each, lost in fitting:
        counts[len(each.actions)] += 1 if lost else -1
    return lambda failures: [counts[len(each.actions)] >= 0 for each in failures]


def fit_gate(fitting: Sequence[tuple[LoggedFailure, bool]]) -> Gate:
    """Return a gate fitted by gradient boosting; that of the length where there are too few episodes of a kind.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    classes = [lost for _, lost in fitting]
    if min(classes.count(True), classes.count(False)) < 2 or not can_be_sampled_by_class(classes):
        return fit_length_gate(fitting)
    features = LogFeatures([each for each, _ in fitting])
    predict = fit_classes([features.flat(each) for each, _ in fitting], classes, SEED)

    def gate(failures: Sequence[LoggedFailure]) -> list[bool]:
        names, chances = predict([features.flat(each) for each in failures])
        return [bool(names[index]) for index in chances.argmax(axis=1)]

    return gate


def _safe_counts(fitting: Sequence[Certified]) -> Mapping[str, int]:
    """Return how often each action was safe at the pivots of the other half."""
    return Counter(
        action
        for each in fitting
        if each.pivot_step is not None and each.turns
        for action in each.turns[each.pivot_step].safe_actions
    )


def _reply(item: Item, guess: Guess | None, safe: Mapping[str, int], name: str) -> str:
    """Return the reply that a guess gives to an item."""
    if item.question == "safe":
        offered = [action for action in item.choices if action != item.actions[item.step or 0]] or list(item.choices)
        if name == "uniform":
            return safe_reply(offered[below(draw(item, name), len(offered))])
        return safe_reply(max(offered, key=lambda action: (safe.get(action, 0), -offered.index(action))))
    if guess is None:
        return locate_reply(None, None) if item.question == "locate" else reach_reply(None, item.num_steps)
    step = guess.step
    if name == "uniform":
        step = list(guess.steps)[below(draw(item, name), len(guess.steps))]
    step = min(step, item.num_steps - 1)
    if item.question == "locate":
        return locate_reply(step, guess.mode if guess.mode in item.choices else item.choices[0])
    return reach_reply(step, item.num_steps)


# Words of thoughts


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
