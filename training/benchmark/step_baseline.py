"""A baseline that reads the log step by step: boosted trees judge each step with those around it and what came before.

The other learned baselines name the pivot of a failure. This one also answers the other questions: whether the goal is
still within reach after a step, how many turns it takes then, and which actions would have been safe. Each is a model
of its own, fitted on the other half of the levels.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...datasets.predictors import LoggedFailure
from ...models.extras import need
from ...solvers.credit import TurnCredit
from ..config import EXTRA
from ..evaluation.baselines import LEAF, fit_classes, known_columns
from ..evaluation.level_posterior import Judgement
from ..evaluation.log_features import LogFeatures

STEPS = "steps"
"""Name of the baseline."""
SEED = 0
"""Seed of the fits of all learned baselines."""
WINDOW = (-2, -1, 1, 2)
"""Steps around a step whose features count, too."""

Rows = NDArray[np.float32]
Chances = Callable[[Rows], NDArray[np.float64]]
"""Returns the chance that something holds for each row, shape (rows,)."""


@dataclass(frozen=True)
class Fitting:
    """An episode to fit on, with its truth."""

    log: LoggedFailure
    """The episode as the log shows it; its pivot counts if it was lost."""
    lost: bool
    turns: Sequence[TurnCredit]
    """Empty where the solver measures nothing."""


class StepBaseline:
    """The fitted models."""

    def __init__(self, episodes: Sequence[Fitting]) -> None:
        """Fit on episodes, some of which were lost.

        Raises:
            PluginError: scikit-learn is not installed.
        """
        self._features = LogFeatures([each.log for each in episodes if each.lost])
        rows = [self.rows(each.log) for each in episodes]
        lost = [(each.log, mine) for each, mine in zip(episodes, rows, strict=True) if each.lost]
        pivots = [[t == log.pivot_step for t in range(len(log.actions))] for log, _ in lost]
        self._pivot = _fit_chance(np.concatenate([mine for _, mine in lost]), np.concatenate(pivots))
        self._modes = fit_classes([mine[log.pivot_step] for log, mine in lost], [log.failure_mode for log, _ in lost])
        measured = [(each, mine) for each, mine in zip(episodes, rows, strict=True) if each.turns]
        self._reach: Chances | None = None
        self._need: Callable[[Rows], NDArray[np.float64]] | None = None
        self._safe: dict[str, Chances] = {}
        if not measured:
            return
        stacked = np.concatenate([mine for _, mine in measured])
        turns = [(turn, each.log.horizon) for each, _ in measured for turn in each.turns]
        self._reach = _fit_chance(stacked, np.array([turn.within_reach for turn, _ in turns]))
        beyond = [horizon + 1 if turn.need_after is None else turn.need_after for turn, horizon in turns]
        self._need = _fit_number(stacked, np.array(beyond, float))
        at_pivot = [
            (each.turns[each.log.pivot_step].safe_actions, mine[each.log.pivot_step])
            for each, mine in measured
            if each.lost
        ]
        counts = Counter(action for actions, _ in at_pivot for action in set(actions))
        for action in sorted(action for action, count in counts.items() if count >= LEAF):
            labels = np.array([action in actions for actions, _ in at_pivot])
            self._safe[action] = _fit_chance(np.stack([row for _, row in at_pivot]), labels)

    def rows(self, log: LoggedFailure) -> Rows:
        """Return the features of each step, shape (T, features).

        They are its own, its neighbours', the last step's, the number of actions of each kind and of visits of its
        place so far, and its distance from the pivot by arithmetic.
        """
        own = self._features.of(log)
        count, width = own.shape
        padded = np.pad(own, ((2, 2), (0, 0)), constant_values=np.nan)
        around = [padded[2 + shift : 2 + shift + count] for shift in WINDOW]
        end = np.broadcast_to(own[-1], (count, width))
        kinds = np.cumsum(own[:, : len(self._features.kinds)], axis=0)
        places, usual = [tuple(row) for row in own[:, -5:-3].tolist()], self._features.arithmetic_step(log)
        others = [
            (places[: t + 1].count(place), places[t:].count(place), log.horizon, usual - t)
            for t, place in enumerate(places)
        ]
        return np.concatenate([own, *around, end, kinds, np.array(others, np.float32)], axis=1)

    def judge(self, log: LoggedFailure) -> Judgement:
        """Return what the models say about an episode."""
        rows = self.rows(log)
        pivot = self._pivot(rows)
        pivot = pivot / pivot.sum() if pivot.sum() else np.full(len(pivot), 1 / len(pivot))
        modes, chances = self._modes([rows[int(pivot.argmax())]])
        # What was lost stays lost.
        reach = None if self._reach is None else np.minimum.accumulate(self._reach(rows))
        return Judgement(
            pivot,
            str(modes[int(chances[0].argmax())]),
            reach,
            None if self._need is None else self._need(rows),
            {action: chance(rows) for action, chance in self._safe.items()},
        )


def _fit_chance(rows: Rows, labels: NDArray[Any]) -> Chances:
    predict = fit_classes(list(rows), [bool(label) for label in labels], SEED)

    def chance(tests: Rows) -> NDArray[np.float64]:
        names, chances = predict(list(tests))
        return chances[:, list(names).index(True)] if True in names else np.zeros(len(tests))

    return chance


def _fit_number(rows: Rows, values: NDArray[np.float64]) -> Callable[[Rows], NDArray[np.float64]]:
    ensemble: Any = need("sklearn.ensemble", EXTRA)
    columns = known_columns(rows)
    model = ensemble.HistGradientBoostingRegressor(
        learning_rate=0.1, max_iter=100, max_leaf_nodes=15, min_samples_leaf=LEAF, random_state=SEED
    ).fit(rows[:, columns], values)
    return lambda tests: model.predict(tests[:, columns])
