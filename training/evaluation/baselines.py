"""Baselines that read the log alone: trivial predictors, gradient boosting, a small transformer, guessed levels.

All use the same input: actions, flags and numbers of the log, and the length. They are fitted on one split of the
dataset and measured on the other. An Analyzer that uses the images has to beat the best of them, which is a slightly
optimistic bound, because it is chosen on the test split.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...datasets.predictors import PREDICTORS, Guess, LoggedFailure
from ...models.extras import look_for, need
from ..config import EXTRA
from .level_posterior import LevelPosterior, fit_without_habits, objection
from .log_features import LogFeatures
from .metrics import Share, share

PredictAll = Callable[[Sequence[LoggedFailure]], list[Guess]]
"""Predicts the labels of many failures."""


def guess_of(weights: Sequence[float], mode: str, failure: LoggedFailure) -> Guess:
    """Return the guess of the step of the episode with the largest weight."""
    steps = range(min(len(weights), len(failure.actions)))
    return Guess({max(steps, key=lambda step: weights[step]): 1.0}, mode)


# Learned predictors

LEAF = 20
"""Least number of failures in a leaf of a boosted tree, scikit-learn's default."""
CHECK_SHARE = 0.1
"""Share of the failures on which early stopping is decided."""


ClassChances = Callable[[Sequence[NDArray[np.float32]]], tuple[list[Any], NDArray[np.float64]]]
"""Returns the classes, and the chance of each for some rows, shape (rows, classes)."""


def fit_classes(rows: Sequence[NDArray[np.float32]], classes: Sequence[Any], seed: int = 0) -> ClassChances:
    """Fit gradient boosting of scikit-learn to the class of each row.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    ensemble: Any = need("sklearn.ensemble", EXTRA)
    if len(set(classes)) == 1:
        only = classes[0]
        return lambda tests: ([only], np.ones((len(tests), 1)))
    # Early stopping on a tenth of the rows prevents overfitting. The library samples them by class; if a class is too
    # rare for that, they are sampled here.
    by_class = can_be_sampled_by_class(classes)
    check = [] if by_class else check_rows(classes, seed)
    fitted = [index for index in range(len(classes)) if index not in set(check)]
    stacked, labels = np.stack(rows), np.asarray(classes)
    columns = known_columns(stacked)
    stacked = stacked[:, columns]
    model = ensemble.HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_iter=100,
        max_leaf_nodes=15,
        min_samples_leaf=LEAF,
        early_stopping=bool(check) or by_class,
        random_state=seed,
    ).fit(stacked[fitted], labels[fitted], **({"X_val": stacked[check], "y_val": labels[check]} if check else {}))
    return lambda tests: (list(model.classes_), model.predict_proba(np.stack(tests)[:, columns]))


def known_columns(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which columns have enough values for a leaf; the library cannot bin a column without any.

    A column of a neighbouring step has none where no episode is that long.
    """
    return (~np.isnan(rows)).sum(axis=0) >= min(LEAF, len(rows))


def fit_boosting(train: Sequence[LoggedFailure], seed: int = 0) -> PredictAll:
    """Fit gradient boosting of scikit-learn on flat rows, one for the pivot step and one for the mode.

    With fewer failures than :data:`LEARNED` requires, no tree can be split, and it predicts the most frequent label.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    features = LogFeatures(train)
    rows = [features.flat(each) for each in train]
    steps = fit_classes(rows, [each.pivot_step for each in train], seed)
    modes = fit_classes(rows, [each.failure_mode for each in train], seed)

    def predict(failures: Sequence[LoggedFailure]) -> list[Guess]:
        tests = [features.flat(each) for each in failures]
        step_names, step_chances = steps(tests)
        mode_names, mode_chances = modes(tests)
        guesses = []
        for failure, chances, mode in zip(failures, step_chances, mode_chances.argmax(axis=1), strict=True):
            weights = dict(zip(step_names, chances, strict=True))
            spread = [weights.get(step, 0.0) for step in range(len(failure.actions))]
            guesses.append(guess_of(spread, mode_names[mode], failure))
        return guesses

    return predict


def can_be_sampled_by_class(classes: Sequence[Any]) -> bool:
    """Whether a tenth of the rows can contain every class, and the rest, too."""
    counts = Counter(classes)
    return min(counts.values()) >= 2 and math.ceil(CHECK_SHARE * len(classes)) >= len(counts)


def check_rows(classes: Sequence[Any], seed: int) -> list[int]:
    """Return the indices of a random tenth of the rows, without the last row of a class."""
    order = list(range(len(classes)))
    random.Random(seed).shuffle(order)
    left, check = Counter(classes), list[int]()
    for index in order:
        if len(check) < math.ceil(CHECK_SHARE * len(classes)) and left[classes[index]] > 1:
            left[classes[index]] -= 1
            check.append(index)
    return sorted(check)


EPOCHS = 30
PATIENCE = 4
"""Epochs without a better likelihood on a tenth of the training failures, after which fitting stops."""


def fit_transformer(train: Sequence[LoggedFailure], seed: int = 0) -> PredictAll:
    """Fit a small transformer over the steps of a log, which predicts pivot step and mode.

    Raises:
        PluginError: PyTorch is not installed.
    """
    torch: Any = need("torch", EXTRA)
    # Imported here: the module derives a class from one of PyTorch's.
    from .log_transformer import LogTransformer  # noqa: PLC0415

    torch.manual_seed(seed)
    features = LogFeatures(train)
    modes = sorted({each.failure_mode for each in train})
    count = max(1, len(train) // 10) if len(train) > 20 else 0
    order = list(range(len(train)))
    random.Random(seed).shuffle(order)
    model = LogTransformer(features, [features.of(each) for each in train], len(modes))
    fitted = model.encode([train[each] for each in order[count:]], modes)
    check = model.encode([train[each] for each in order[:count]], modes) if count else None
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    best, best_state, waited = math.inf, None, 0
    for epoch in range(EPOCHS):
        model.train()
        for group in fitted.batches(random.Random(f"{seed}.{epoch}")):
            loss = model.loss(group)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        if check is None:
            continue
        model.eval()
        with torch.no_grad():
            score = float(model.loss(check))
        if score < best:
            best, waited = score, 0
            best_state = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            waited += 1
            if waited == PATIENCE:
                break
    if best_state is not None:
        model.load_state_dict(best_state)
    model.eval()

    def predict(failures: Sequence[LoggedFailure]) -> list[Guess]:
        with torch.no_grad():
            steps, named = model(model.encode(failures))
        return [
            guess_of(row[: len(failure.actions)], modes[mode], failure)
            for failure, row, mode in zip(failures, steps.tolist(), named.argmax(dim=1).tolist(), strict=True)
        ]

    return predict


@dataclass(frozen=True, slots=True)
class LearnedPredictor:
    """A learned baseline."""

    fit: Callable[[Sequence[LoggedFailure], int], PredictAll]
    fewest: int
    """Least number of failures to fit on."""


LEARNED: Mapping[str, LearnedPredictor] = {
    "gradient boosting": LearnedPredictor(fit_boosting, math.ceil(2 * LEAF / (1 - CHECK_SHARE))),
    "transformer": LearnedPredictor(fit_transformer, 2),
}
GUESSING_LEVELS: Mapping[str, Callable[[Sequence[LoggedFailure]], LevelPosterior]] = {
    "level posterior": LevelPosterior,
    "level posterior, no habits": fit_without_habits,
}
"""Baselines of the puzzles that need no package; :func:`.level_posterior.objection` says where there are none."""


def check_learned() -> None:
    """Check that the packages of the learned baselines are installed.

    Raises:
        PluginError: a package is not installed.
    """
    for package in ("sklearn", "torch"):
        look_for(package, EXTRA)


# Tables


def score_guesses(
    guesses: Sequence[Guess], failures: Sequence[LoggedFailure], levels: Sequence[str], seed: int = 0
) -> dict[str, Share]:
    """Return the shares of correct guesses, with intervals over levels."""
    columns: dict[str, list[float]] = {"pivot exact": [], "pivot within 1": [], "mode": [], "joint": []}
    for guess, failure in zip(guesses, failures, strict=True):
        exact = guess.steps.get(failure.pivot_step, 0.0)
        named = float(guess.mode == failure.failure_mode)
        near = sum(weight for step, weight in guess.steps.items() if abs(step - failure.pivot_step) <= 1)
        for name, value in zip(columns, (exact, near, named, exact * named), strict=True):
            columns[name].append(value)
    return {name: share(values, levels, seed) for name, values in columns.items()}


@dataclass(frozen=True, slots=True)
class Baselines:
    """Shares of the baselines for one environment."""

    shares: Mapping[str, Mapping[str, Share]]
    """Shares by baseline, in the order of tables."""
    not_fitted: Mapping[str, str]
    """Reason by baseline that was not fitted."""

    def row(self) -> dict[str, Any]:
        """Return the shares and reasons as JSON data."""
        shares = {name: {what: each.row() for what, each in row.items()} for name, row in self.shares.items()}
        return {"shares": shares, "not_fitted": dict(self.not_fitted)}


def baseline_table(
    train: Sequence[LoggedFailure],
    test: Sequence[LoggedFailure],
    levels: Sequence[str],
    *,
    word: Callable[[str], str] = str,
    learned: bool = True,
    seed: int = 0,
) -> Baselines:
    """Measure every baseline on the test failures of one environment.

    Args:
        train: failures to fit on, at least one.
        test: failures of other levels, at least one.
        levels: the canonical level of each test failure.
        word: converts a certificate's name of a mode to the name in the failures.
        learned: whether the learned baselines are fitted, too.
        seed: seed of the fits and the intervals.

    Raises:
        PluginError: a package of the learned baselines is not installed.
    """
    table, not_fitted = dict[str, dict[str, Share]](), dict[str, str]()
    for name, fit in PREDICTORS.items():
        predictor = fit(train)
        guesses = [predictor(each) for each in test]
        named = [replace(guess, mode=word(guess.mode)) for guess in guesses]
        table[name] = score_guesses(named, test, levels, seed)
    for name, fit in GUESSING_LEVELS.items() if objection(train) is None else ():
        table[name] = score_guesses(fit(train)(test), test, levels, seed)
    for name, learner in LEARNED.items() if learned else ():
        if len(train) < learner.fewest:
            not_fitted[name] = (
                f"found {len(train)} failures to fit on, expected at least {learner.fewest}; build more levels"
            )
        else:
            table[name] = score_guesses(learner.fit(train, seed)(test), test, levels, seed)
    return Baselines(table, not_fitted)


def best_of(table: Mapping[str, Mapping[str, Share]], what: str = "pivot exact") -> str:
    """Return the name of the baseline with the largest share; the first one if several are equal."""
    return max(table, key=lambda name: table[name][what].value)
