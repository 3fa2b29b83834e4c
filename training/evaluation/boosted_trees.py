"""A baseline that reads the log step by step: boosted trees judge each step with those around it and what came before.

Pivot, mode, whether the goal is still within reach after a step, how many turns it takes then, and which set of actions
was safe: each is a model of its own of scikit-learn, fitted on the other split or half of the levels. The same
library decides whether an episode was lost at all.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...datasets.export.predictors import LoggedFailure, fit_arithmetic
from ...models.extras import need
from ...solvers.credit import TurnCredit
from ..config import EXTRA

SEED = 0
"""Seed of all fits."""
LEAF = 20
"""Least number of rows in a leaf of a boosted tree, scikit-learn's default."""
CHECK_SHARE = 0.1
"""Share of the rows on which early stopping is decided."""
FEWEST = math.ceil(2 * LEAF / (1 - CHECK_SHARE))
"""Least number of failures to fit on: with fewer, no tree can be split."""
WINDOW = (-2, -1, 1, 2)
"""Offsets of the neighbouring steps whose features are added."""

Rows = NDArray[np.float32]
ClassChances = Callable[[Sequence[Rows]], tuple[list[Any], NDArray[np.float64]]]
"""Returns the classes, and the chance of each for some rows, shape (rows, classes)."""
Chances = Callable[[Rows], NDArray[np.float64]]
"""Returns the chance that a property holds, per row, shape (rows,)."""


@dataclass(frozen=True)
class Fitting:
    """An episode to fit on, with its truth."""

    log: LoggedFailure
    """The log of the episode; its pivot counts if it was lost."""
    lost: bool = True
    turns: Sequence[TurnCredit] = ()
    """Credit of each turn; empty where nothing is measured."""


def partly_safe(episodes: Sequence[Fitting]) -> list[tuple[Fitting, int, tuple[str, ...]]]:
    """Return the turns before which some actions were safe, and some not: episode, step and safe actions."""
    turns = [(each, t, turn.safe_actions) for each in episodes for t, turn in enumerate(each.turns)]
    offered = {action for _, _, actions in turns for action in actions}
    return [(each, t, actions) for each, t, actions in turns if 0 < len(actions) < len(offered)]


@dataclass(frozen=True)
class Judgement:
    """Judgement of a baseline about an episode that was lost, by the log alone. ``T`` is the number of steps."""

    pivot: NDArray[np.float64]
    """Chance of each step to be the pivot, adds up to 1, shape (T,)."""
    mode: str
    reach: NDArray[np.float64] | None = None
    """Chance that the goal is within reach after each step, lost or not, shape (T,); None if the pivot says it all."""
    need: NDArray[np.float64] | None = None
    """Turns that the goal takes after each step, on average, at most one more than the horizon, shape (T,)."""
    safe: Sequence[tuple[str, ...]] = ()
    """Likeliest set of safe actions before each step, if there were any, length T; empty where it is unknown."""


# Features of a log

_WAYS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


def action_kind(action: str) -> str:
    """Return an action without its arguments: ``pick|place`` of ``pick(1,2,3)|place(4,5,6)``."""
    return "|".join(part.partition("(")[0] for part in action.split("|"))


class LogFeatures:
    """Features of a log; per step the action, all logged fields, the position reached, and the number of idle moves."""

    def __init__(self, train: Sequence[LoggedFailure]) -> None:
        """Use the actions and fields of the training failures."""
        self.steps = max(each.horizon for each in train)
        self.kinds = sorted({action_kind(action) for each in train for action in each.actions})
        self.fields = sorted({name for each in train for info in each.infos for name in info})
        self._arithmetic = fit_arithmetic(train)

    @property
    def width(self) -> int:
        """Number of features per step."""
        return len(self.kinds) + len(self.fields) + 5

    def of(self, failure: LoggedFailure) -> Rows:
        """Return the features of every step, shape (T, width); NaN for a field that was not logged."""
        rows = np.full((len(failure.actions), self.width), np.nan, np.float32)
        rows[:, : len(self.kinds)] = 0.0
        x = y = idle = 0
        for t, action in enumerate(failure.actions):
            kind, moved = action_kind(action), failure.moved[t]
            if kind in self.kinds:
                rows[t, self.kinds.index(kind)] = 1.0
            for column, name in enumerate(self.fields, len(self.kinds)):
                value = failure.infos[t].get(name)
                if isinstance(value, bool | int | float) and math.isfinite(value):
                    rows[t, column] = float(value)
            if moved is False:
                idle += 1
            elif action in _WAYS:
                x, y = x + _WAYS[action][0], y + _WAYS[action][1]
            rows[t, -5:] = (x, y, idle, t, len(failure.actions) - t)
        return rows

    def flat(self, failure: LoggedFailure) -> Rows:
        """Return all steps in one row, NaN after the last, then the length and the step of the arithmetic reading."""
        row = np.full(self.steps * self.width + 2, np.nan, np.float32)
        rows = self.of(failure)[: self.steps].ravel()
        row[: len(rows)] = rows
        row[-2:] = (len(failure.actions), self.arithmetic_step(failure))
        return row

    def around(self, log: LoggedFailure) -> Rows:
        """Return the features of each step with those of other steps, shape (T, features).

        They are its own, its neighbours', the last step's, the number of actions of each kind and of visits of its
        place so far, and its distance from the pivot by arithmetic.
        """
        own = self.of(log)
        count, width = own.shape
        padded = np.pad(own, ((2, 2), (0, 0)), constant_values=np.nan)
        around = [padded[2 + shift : 2 + shift + count] for shift in WINDOW]
        end = np.broadcast_to(own[-1], (count, width))
        kinds = np.cumsum(own[:, : len(self.kinds)], axis=0)
        places, usual = [tuple(row) for row in own[:, -5:-3].tolist()], self.arithmetic_step(log)
        others = [
            (places[: t + 1].count(place), places[t:].count(place), log.horizon, usual - t)
            for t, place in enumerate(places)
        ]
        return np.concatenate([own, *around, end, kinds, np.array(others, np.float32)], axis=1)

    def arithmetic_step(self, failure: LoggedFailure) -> int:
        """Return the pivot step by arithmetic on the log, see :func:`.predictors.fit_arithmetic`."""
        return self._arithmetic(failure).step


# Fits


def fit_classes(rows: Sequence[Rows], classes: Sequence[Any]) -> ClassChances:
    """Fit gradient boosting to the class of each row.

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
    check = [] if by_class else check_rows(classes)
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
        random_state=SEED,
    ).fit(stacked[fitted], labels[fitted], **({"X_val": stacked[check], "y_val": labels[check]} if check else {}))
    return lambda tests: (list(model.classes_), model.predict_proba(np.stack(tests)[:, columns]))


def known_columns(rows: Rows) -> NDArray[np.bool_]:
    """Return which columns have enough values for a leaf; the library cannot bin a column without any.

    A column of a neighbouring step has none where no episode is that long.
    """
    return (~np.isnan(rows)).sum(axis=0) >= min(LEAF, len(rows))


def can_be_sampled_by_class(classes: Sequence[Any]) -> bool:
    """Whether a tenth of the rows can contain every class, and the rest, too."""
    counts = Counter(classes)
    return min(counts.values()) >= 2 and math.ceil(CHECK_SHARE * len(classes)) >= len(counts)


def check_rows(classes: Sequence[Any]) -> list[int]:
    """Return the indices of a random tenth of the rows, without the last row of a class."""
    order = list(range(len(classes)))
    random.Random(SEED).shuffle(order)
    left, check = Counter(classes), list[int]()
    for index in order:
        if len(check) < math.ceil(CHECK_SHARE * len(classes)) and left[classes[index]] > 1:
            left[classes[index]] -= 1
            check.append(index)
    return sorted(check)


def likeliest(names: list[Any], chances: NDArray[np.float64]) -> list[Any]:
    """Return the class with the largest chance in each row."""
    return [names[index] for index in chances.argmax(axis=1).tolist()]


def _fit_chance(rows: Rows, labels: NDArray[Any]) -> Chances:
    predict = fit_classes(list(rows), [bool(label) for label in labels])

    def chance(tests: Rows) -> NDArray[np.float64]:
        names, chances = predict(list(tests))
        return chances[:, list(names).index(True)] if True in names else np.zeros(len(tests))

    return chance


def _fit_number(rows: Rows, values: NDArray[np.float64]) -> Chances:
    ensemble: Any = need("sklearn.ensemble", EXTRA)
    columns = known_columns(rows)
    model = ensemble.HistGradientBoostingRegressor(
        learning_rate=0.1, max_iter=100, max_leaf_nodes=15, min_samples_leaf=LEAF, random_state=SEED
    ).fit(rows[:, columns], values)
    return lambda tests: model.predict(tests[:, columns])


def fit_lost(episodes: Sequence[Fitting]) -> Callable[[LoggedFailure], bool] | None:
    """Fit whether an episode was lost at all; None where there are too few episodes of a kind.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    classes = [each.lost for each in episodes]
    if min(classes.count(True), classes.count(False)) < 2 or not can_be_sampled_by_class(classes):
        return None
    features = LogFeatures([each.log for each in episodes])
    predict = fit_classes([features.flat(each.log) for each in episodes], classes)

    def is_lost(log: LoggedFailure) -> bool:
        return bool(likeliest(*predict([features.flat(log)]))[0])

    return is_lost


class BoostedTrees:
    """The fitted models."""

    def __init__(self, episodes: Sequence[Fitting]) -> None:
        """Fit on episodes, some of which were lost.

        Raises:
            PluginError: scikit-learn is not installed.
        """
        self._features = LogFeatures([each.log for each in episodes if each.lost])
        rows = [self._features.around(each.log) for each in episodes]
        lost = [(each.log, mine) for each, mine in zip(episodes, rows, strict=True) if each.lost]
        pivots = [[t == log.pivot_step for t in range(len(log.actions))] for log, _ in lost]
        self._pivot = _fit_chance(np.concatenate([mine for _, mine in lost]), np.concatenate(pivots))
        self._modes = fit_classes([mine[log.pivot_step] for log, mine in lost], [log.failure_mode for log, _ in lost])
        measured = [(each, mine) for each, mine in zip(episodes, rows, strict=True) if each.turns]
        self._reach: Chances | None = None
        self._need: Chances | None = None
        self._safe: ClassChances | None = None
        if not measured:
            return
        stacked = np.concatenate([mine for _, mine in measured])
        turns = [(turn, each.log.horizon) for each, _ in measured for turn in each.turns]
        self._reach = _fit_chance(stacked, np.array([turn.within_reach for turn, _ in turns]))
        beyond = [horizon + 1 if turn.need_after is None else turn.need_after for turn, horizon in turns]
        self._need = _fit_number(stacked, np.array(beyond, float))
        around = {id(each): mine for each, mine in measured}
        safe = [(around[id(each)][t], "|".join(actions)) for each, t, actions in partly_safe(episodes) if each.lost]
        if safe:
            self._safe = fit_classes([row for row, _ in safe], [actions for _, actions in safe])

    def judge(self, log: LoggedFailure) -> Judgement:
        """Return the prediction of the models for an episode."""
        rows = self._features.around(log)
        pivot = self._pivot(rows)
        pivot = pivot / pivot.sum() if pivot.sum() else np.full(len(pivot), 1 / len(pivot))
        (mode,) = likeliest(*self._modes([rows[int(pivot.argmax())]]))
        # A lost goal stays lost.
        reach = None if self._reach is None else np.minimum.accumulate(self._reach(rows))
        return Judgement(
            pivot,
            str(mode),
            reach,
            None if self._need is None else self._need(rows),
            [] if self._safe is None else [tuple(str(each).split("|")) for each in likeliest(*self._safe(list(rows)))],
        )
