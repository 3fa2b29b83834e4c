"""What the log alone decides: trivial predictors, gradient boosting and a small transformer, on held-out levels.

The learned two see what the trivial ones see: actions, flags and numbers of the log, and the length. They get the
training split of the dataset; every figure is of the other side. The best of them is what an Analyzer has to beat
before it can be said to look: being the best of several on the test side it is, if anything, a little too good.
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
from .log_features import LogFeatures
from .metrics import Share, share

EXTRA = "train"

PredictAll = Callable[[Sequence[LoggedFailure]], list[Guess]]
"""Guesses the labels of many failures at once."""


def guess_of(weights: Sequence[float], mode: str, failure: LoggedFailure) -> Guess:
    """Return the guess of the heaviest step that the episode has."""
    steps = range(min(len(weights), len(failure.actions)))
    return Guess({max(steps, key=lambda step: weights[step]): 1.0}, mode)


# Learned predictors

LEAF = 20
"""Failures in a leaf of a boosted tree at least, as scikit-learn has it: fewer are learned by heart."""
HELD_BACK = 0.1
"""Share of the failures by which boosting stops early."""


def fit_boosting(train: Sequence[LoggedFailure], seed: int = 0) -> PredictAll:
    """Fit gradient boosting of scikit-learn on flat rows, one for the pivot step and one for the mode.

    With fewer than :data:`LEARNED` says no tree can be split, and all that it says is what is frequent.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    ensemble: Any = need("sklearn.ensemble", EXTRA)
    features = LogFeatures(train)
    rows = np.stack([features.flat(each) for each in train])

    def classifier(classes: Sequence[Any]) -> Callable[[NDArray[np.float32]], tuple[list[Any], NDArray[np.float64]]]:
        if len(set(classes)) == 1:
            only = classes[0]
            return lambda tests: ([only], np.ones((len(tests), 1)))
        # Stopping early on a tenth of the rows keeps it from learning single episodes by heart. The library draws them
        # by class, or not at all; where a class is too rare for that, they are drawn here.
        held = [] if can_be_drawn_by_class(classes) else held_back(classes, seed)
        kept = [place for place in range(len(classes)) if place not in set(held)]
        labels = np.asarray(classes)
        model = ensemble.HistGradientBoostingClassifier(
            learning_rate=0.1,
            max_iter=100,
            max_leaf_nodes=15,
            min_samples_leaf=LEAF,
            early_stopping=bool(held) or can_be_drawn_by_class(classes),
            random_state=seed,
        ).fit(rows[kept], labels[kept], **({"X_val": rows[held], "y_val": labels[held]} if held else {}))
        return lambda tests: (list(model.classes_), model.predict_proba(tests))

    steps = classifier([each.pivot_step for each in train])
    modes = classifier([each.failure_mode for each in train])

    def predict(failures: Sequence[LoggedFailure]) -> list[Guess]:
        tests = np.stack([features.flat(each) for each in failures])
        step_names, step_chances = steps(tests)
        mode_names, mode_chances = modes(tests)
        guesses = []
        for failure, chances, mode in zip(failures, step_chances, mode_chances.argmax(axis=1), strict=True):
            weights = dict(zip(step_names, chances, strict=True))
            spread = [weights.get(step, 0.0) for step in range(len(failure.actions))]
            guesses.append(guess_of(spread, mode_names[mode], failure))
        return guesses

    return predict


def can_be_drawn_by_class(classes: Sequence[Any]) -> bool:
    """Whether a tenth can hold every class, and so can the rest."""
    counts = Counter(classes)
    return min(counts.values()) >= 2 and math.ceil(HELD_BACK * len(classes)) >= len(counts)


def held_back(classes: Sequence[Any], seed: int) -> list[int]:
    """Draw a tenth of the places, never the last of a class: what is held back has to be among what is learned."""
    order = list(range(len(classes)))
    random.Random(seed).shuffle(order)
    left, held = Counter(classes), list[int]()
    for place in order:
        if len(held) < math.ceil(HELD_BACK * len(classes)) and left[classes[place]] > 1:
            left[classes[place]] -= 1
            held.append(place)
    return sorted(held)


EPOCHS = 30
PATIENCE = 4
"""Epochs without a better likelihood on the tenth of the training failures that is held back."""


def fit_transformer(train: Sequence[LoggedFailure], seed: int = 0) -> PredictAll:
    """Fit a small transformer over the steps of a log, which points at one of them and names the mode.

    Raises:
        PluginError: PyTorch is not installed.
    """
    torch: Any = need("torch", EXTRA)
    # Imported here: the module derives a class from one of PyTorch's.
    from .log_transformer import LogTransformer  # noqa: PLC0415

    torch.manual_seed(seed)
    features = LogFeatures(train)
    modes = sorted({each.failure_mode for each in train})
    held = max(1, len(train) // 10) if len(train) > 20 else 0
    order = list(range(len(train)))
    random.Random(seed).shuffle(order)
    model = LogTransformer(features, [features.of(each) for each in train], len(modes))
    fitted = model.encode([train[each] for each in order[held:]], modes)
    check = model.encode([train[each] for each in order[:held]], modes) if held else None
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
class Learner:
    """A predictor that is learned."""

    fit: Callable[[Sequence[LoggedFailure], int], PredictAll]
    fewest: int
    """Failures to fit on, without which it can learn nothing."""


LEARNED: Mapping[str, Learner] = {
    "gradient boosting": Learner(fit_boosting, math.ceil(2 * LEAF / (1 - HELD_BACK))),
    "transformer": Learner(fit_transformer, 2),
}


def check_learned() -> None:
    """See whether the learned predictors can be fitted, before anything that takes long.

    Raises:
        PluginError: a package is not installed.
    """
    for package in ("sklearn", "torch"):
        look_for(package, EXTRA)


# Tables


def score_guesses(
    guesses: Sequence[Guess], failures: Sequence[LoggedFailure], levels: Sequence[str], seed: int = 0
) -> dict[str, Share]:
    """Return the shares of some guesses, with intervals over levels."""
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
    """What the log gives away of one environment."""

    shares: Mapping[str, Mapping[str, Share]]
    """By predictor, in the order of tables."""
    not_fitted: Mapping[str, str]
    """Why a predictor is not among them."""

    def row(self) -> dict[str, Any]:
        """Return both as JSON data."""
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
    """Measure every predictor on the test failures of one environment.

    Args:
        train: failures to fit on, at least one.
        test: failures of other levels, at least one.
        levels: the canonical level of each test failure.
        word: what the failures call a mode that the arithmetic reading names as certificates do.
        learned: whether the learned predictors are fitted, too.
        seed: decides their fits and the intervals.

    Raises:
        PluginError: what the learned ones need is not installed.
    """
    table, not_fitted = dict[str, dict[str, Share]](), dict[str, str]()
    for name, fit in PREDICTORS.items():
        predictor = fit(train)
        guesses = [predictor(each) for each in test]
        named = [replace(guess, mode=word(guess.mode)) for guess in guesses]
        table[name] = score_guesses(named, test, levels, seed)
    for name, learner in LEARNED.items() if learned else ():
        if len(train) < learner.fewest:
            not_fitted[name] = f"{len(train)} failures to fit on, it needs {learner.fewest}; build more levels"
        else:
            table[name] = score_guesses(learner.fit(train, seed)(test), test, levels, seed)
    return Baselines(table, not_fitted)


def best_of(table: Mapping[str, Mapping[str, Share]], what: str = "pivot exact") -> str:
    """Return the name of the predictor with the largest share, the first of equals."""
    return max(table, key=lambda name: table[name][what].value)
