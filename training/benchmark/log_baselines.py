"""The baselines of the benchmark: predictors that read the log alone, fitted on the other half of the levels.

An episode may also have no pivot. A gate decides that first: it is fitted on all episodes of the other half, by
gradient boosting where learned baselines are wanted, else by the length of the episode.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...datasets.predictors import PREDICTORS, Guess, LoggedFailure
from ...identity import below
from ..evaluation.baselines import GUESSING_LEVELS, LEARNED, PredictAll, can_be_sampled_by_class, fit_classes
from ..evaluation.level_posterior import objection
from ..evaluation.log_features import LogFeatures
from .episodes import Certified
from .items import LOGS, QUESTIONS, Item, plugin_of
from .make import Made
from .predictions import Header, Prediction, Predictions
from .scores import score
from .stand_ins import draw, locate_reply, reach_reply, safe_reply
from .word_baseline import fit_words

SEED = 0
"""Seed of the fits."""

Gate = Callable[[Sequence[LoggedFailure]], list[bool]]
"""Decides for episodes whether they were lost."""


def log_of(item: Item) -> LoggedFailure:
    """Return an item as a predictor sees it, without any truth."""
    return LoggedFailure.of_record(
        {"env": plugin_of(item.env), "horizon": item.horizon, "actions": item.actions, "action_log": item.action_log}
        | {"pivot_step": 0, "failure_mode": ""}
    )


def measure_baselines(made: Made, *, learned: bool = True) -> list[dict[str, Any]]:
    """Return the results of all baselines on a benchmark, without intervals that a table does not show.

    Args:
        made: the benchmark and the episodes to fit on.
        learned: whether the learned baselines are fitted, too.

    Raises:
        PluginError: a package of the learned baselines is not installed.
    """
    benchmark = made.benchmark
    guesses: dict[str, dict[str, Guess | None]] = {}
    for env in benchmark.environments:
        for log in LOGS:
            items = [item for item in benchmark.items.values() if item.env == env and item.log == log]
            fitting = _as_logged(made.fitting[env], log, benchmark.variant.thoughts)
            for name, answers in _guesses(items, fitting, learned=learned).items():
                guesses.setdefault(name, {}).update(answers)
    safe = {env: _safe_counts(made.fitting[env]) for env in benchmark.environments}
    results: list[dict[str, Any]] = []
    for name, answers in guesses.items():
        rows = {
            item.item_id: Prediction(item.item_id, reply=_reply(item, answers[item.item_id], safe[item.env], name))
            for item in benchmark.items.values()
            if item.item_id in answers
        }
        envs = tuple(
            env
            for env in benchmark.environments
            if all(item.item_id in rows for item in benchmark.items.values() if item.env == env)
        )
        if envs:
            header = Header(benchmark.fingerprint, name, questions=QUESTIONS, environments=envs)
            results.append(score(benchmark, Predictions(header, rows)))
    return results


def _as_logged(certified: Sequence[Certified], log: str, thoughts: bool) -> list[tuple[LoggedFailure, bool]]:
    """Return episodes as one kind of log shows them, each with whether it was lost."""
    return [(each.logged(log, thoughts), each.pivot_step is not None) for each in certified]


def _guesses(
    items: Sequence[Item], fitting: Sequence[tuple[LoggedFailure, bool]], *, learned: bool
) -> dict[str, dict[str, Guess | None]]:
    """Return the guess of each baseline about each item; None for "never lost"."""
    train = [each for each, lost in fitting if lost]
    if not train:
        return {}
    test = [log_of(item) for item in items]
    lost = (fit_gate if learned else fit_length_gate)(fitting)(test)
    fits: dict[str, Callable[[], PredictAll]] = {
        name: lambda fit=fit: _one_by_one(fit(train)) for name, fit in PREDICTORS.items()
    }
    if "thought" in train[0].infos[0]:
        fits["words"] = lambda: _one_by_one(fit_words(train))
    if objection(train) is None:
        fits |= {name: lambda fit=fit: fit(train) for name, fit in GUESSING_LEVELS.items()}
    for name, learner in LEARNED.items() if learned else ():
        if len(train) >= learner.fewest:
            fits[name] = lambda learner=learner: learner.fit(train, SEED)
    guesses: dict[str, dict[str, Guess | None]] = {}
    for name, fit in fits.items():
        answers = fit()(test)
        guesses[name] = {
            item.item_id: answer if is_lost else None
            for item, answer, is_lost in zip(items, answers, lost, strict=True)
        }
    guesses["constant"] = dict.fromkeys((item.item_id for item in items), _most_frequent(fitting))
    return guesses


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
