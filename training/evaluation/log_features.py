"""Features of a log, step by step, on which the learned baselines are fitted."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...datasets.predictors import LoggedFailure, fit_arithmetic

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

    def of(self, failure: LoggedFailure) -> NDArray[np.float32]:
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

    def flat(self, failure: LoggedFailure) -> NDArray[np.float32]:
        """Return all steps in one row, NaN after the last, then the length and the step of the arithmetic reading."""
        row = np.full(self.steps * self.width + 2, np.nan, np.float32)
        rows = self.of(failure)[: self.steps].ravel()
        row[: len(rows)] = rows
        row[-2:] = (len(failure.actions), self.arithmetic_step(failure))
        return row

    def arithmetic_step(self, failure: LoggedFailure) -> int:
        """Return the pivot step by arithmetic on the log, see :func:`.predictors.fit_arithmetic`."""
        return self._arithmetic(failure).step
