"""Simple predictors of pivot and mode: what can be predicted about a failure without its pictures.

Each is fitted on the failures of one environment's training split and then reads one failure at a time: its actions,
the fields of its compact log and its length, nothing else. How often they are right is what any Analyzer has to beat
before it can be said to look at pictures. Pure functions; nothing is drawn at random.
"""

import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ..store.config import environment

_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_TRANSLATIONS = frozenset({"moveahead", "moveback", "moveright", "moveleft"})
_PRIMITIVE = re.compile(r"(pick|place|push)\(")


@dataclass(frozen=True)
class LoggedFailure:
    """The log of a labelled failure. ``T`` is the number of steps."""

    env: str
    horizon: int
    """``T_max``, turns."""
    actions: Sequence[str]
    """Normalised names, length T, at least one."""
    infos: Sequence[Mapping[str, Any]]
    """The fields of the log after each action, length T; a field that was not logged is not there."""
    pivot_step: int
    failure_mode: str
    initial_state: str = ""
    """Level; used by fitting alone, empty in a failure to predict."""
    env_config: str = ""
    """Settings of the environment, JSON, for fitting alone."""

    @property
    def last(self) -> int:
        """The last step, ``T - 1``."""
        return len(self.actions) - 1

    @cached_property
    def unusable(self) -> str:
        """Word that the environment logs in place of an action when a reply held none."""
        return environment(self.env).profile.unusable_action

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "LoggedFailure":
        """Read a row of the ``dataset`` table: what stands in its ``action_log``, and its label."""
        infos = [
            {name: _value(text) for name, text in _FIELD.findall(line) if name != "action"}
            for line in record["action_log"].splitlines()
        ]
        return cls(
            record["env"],
            record["horizon"],
            record["actions"],
            infos,
            record["pivot_step"],
            record["failure_mode"],
            record.get("initial_state", ""),
            record.get("env_config", ""),
        )

    @cached_property
    def moved(self) -> list[bool | None]:
        """Whether each step changed anything, by the log; None where the log has no such field."""
        return [self._moved(t) for t in range(len(self.actions))]

    def _moved(self, t: int) -> bool | None:
        if self.actions[t] == self.unusable:
            return False
        flags = [self.infos[t][name] for name in ("moved", "legal", "valid_svg") if name in self.infos[t]]
        return bool(flags[0]) if flags else None


@lru_cache(maxsize=1024)
def _value(text: str) -> Any:
    """Read a value of the compact log: parsed JSON if it is valid JSON, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Guess(NamedTuple):
    """Answer of a predictor about one failure."""

    step: int
    mode: str


Predictor = Callable[[LoggedFailure], Guess]
"""Predicts the label of a failure without its pictures."""


def most_common(values: Sequence[Any]) -> Any:
    """Return the most frequent value, the smallest of equals; the values are not empty."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value))


def fit_majority(train: Sequence[LoggedFailure]) -> Predictor:
    """Guess the most frequent pivot step of the training split, or the last step of a shorter episode."""
    step, mode = most_common([each.pivot_step for each in train]), _mode(train)
    return lambda failure: Guess(min(step, failure.last), mode)


def _mode(train: Sequence[LoggedFailure]) -> str:
    return most_common([each.failure_mode for each in train])


# Labels that follow from the log by arithmetic, per environment


def fit_arithmetic(train: Sequence[LoggedFailure]) -> Predictor:
    """Compute the label from the log by sums: stages or metres against turns, falls, wasted turns.

    For navigation, primitiveskill and svg this is the rule of the label itself, on the numbers as they are logged; a
    log without those numbers (``actions``) leaves the last step. In the puzzles, and in any other environment, the log
    does not say how far the goal was: there the turns that were wasted are counted against the allowance that fits the
    training split best, and an episode that ended early was lost with its last step.
    """
    rule = _RULES.get(train[0].env)
    if rule is not None:
        return rule
    allowance, mode = _best_allowance(train), _mode(train)

    def predict(failure: LoggedFailure) -> Guess:
        ended_early = len(failure.actions) < failure.horizon
        step = _step_beyond(_wasted(failure), allowance)
        return Guess(failure.last if ended_early else step, "deadlock" if ended_early else mode)

    return predict


def _wasted(failure: LoggedFailure) -> list[int]:
    """Return the turns that were wasted up to each step.

    A turn that changed nothing wastes itself; a move back wastes itself and the move that it undoes.
    """
    wasted, before, sums = 0, None, list[int]()
    for action, moved in zip(failure.actions, failure.moved, strict=True):
        if moved is False:
            wasted += 1
        elif before is not None and _OPPOSITE.get(action) == before:
            wasted, before = wasted + 2, None
        else:
            before = action
        sums.append(wasted)
    return sums


def _step_beyond(wasted: Sequence[int], allowance: int) -> int:
    """Return the first step at which more than ``allowance`` turns were wasted, or the last step."""
    return min(bisect_right(wasted, allowance), len(wasted) - 1)


def _best_allowance(train: Sequence[LoggedFailure]) -> int:
    wasted = [_wasted(each) for each in train]

    def misses(allowance: int) -> int:
        return sum(_step_beyond(sums, allowance) != each.pivot_step for sums, each in zip(wasted, train, strict=True))

    longest = max(len(each.actions) for each in train)
    # A step wastes two turns at most; the horizon comes from a store that may be foreign, so it is not trusted.
    return min(range(min(2 * longest + 1, max(each.horizon for each in train))), key=misses)


def _first_fatal(needed: Sequence[float], horizon: int) -> int:
    """Return the first step after which more turns are needed than are left, or the last step."""
    return next((t for t, amount in enumerate(needed) if amount > horizon - 1 - t), len(needed) - 1)


def _carried(failure: LoggedFailure, name: str) -> list[float] | None:
    """Return a field of every step, gaps filled with the value before (at the start, after); None if all lack it."""
    values = [info.get(name) for info in failure.infos]
    logged = [value for value in values if isinstance(value, int | float)]
    if not logged:
        return None
    series: list[float] = [logged[0]]
    for value in values:
        series.append(value if isinstance(value, int | float) else series[-1])
    return series[1:]


def _navigation(failure: LoggedFailure) -> Guess:
    """Metres beyond the success distance, half a metre a turn, against the turns that are left."""
    distances = _carried(failure, "dist")
    if distances is None:
        return Guess(failure.last, "budget")
    step = _first_fatal([math.ceil(max(0.0, dist - 1.5) / 0.5 - 1e-6) for dist in distances], failure.horizon)
    action, info = failure.actions[step], failure.infos[step]
    window = 5
    if action == failure.unusable:
        mode = "format"
    elif action in _TRANSLATIONS and (info.get("last_action_success") is False or info.get("moved") is False):
        mode = "blocked"
    elif step >= window and round(distances[step - window] - distances[step], 9) < 0.1:
        mode = "stagnation"
    else:
        mode = "budget"
    return Guess(step, mode)


def _primitiveskill(failure: LoggedFailure) -> Guess:
    """Compare the open stages with the turns left, one stage per turn."""
    stages = _carried(failure, "remaining_stages")
    step = failure.last if stages is None else _first_fatal(stages, failure.horizon)
    calls = [_PRIMITIVE.findall(action) for action in failure.actions]
    turn = calls[step]
    first_pick = turn.index("pick") if "pick" in turn else len(turn)
    if not turn or failure.infos[step].get("legal") is False:
        mode = "format"
    elif first_pick > 0 and not any("pick" in earlier for earlier in calls[:step]):
        mode = "order_error"
    elif "place" in turn[first_pick:] and stages is not None and stages[step] >= stages[max(0, step - 1)]:
        mode = "wrong_target"
    else:
        mode = "timeout"
    return Guess(step, mode)


def _svg(failure: LoggedFailure) -> Guess:
    """Return the last submission, with the mode by its score against the one before."""
    scores, last = _carried(failure, "average_score"), failure.last
    if failure.moved[last] is False:
        mode = "format"
    elif scores is None or not last:
        mode = "mismatch"
    else:
        change = round(scores[last] - scores[last - 1], 9)
        mode = "regression" if change < -0.01 else "stagnation" if change <= 0.01 else "mismatch"
    return Guess(last, mode)


_RULES: Mapping[str, Predictor] = {"navigation": _navigation, "primitiveskill": _primitiveskill, "svg": _svg}
