"""Trivial predictors of pivot and mode: what a failure gives away without its pictures.

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
from typing import Any, ClassVar, NamedTuple

from ..store.config import environment
from ..store.dataset_rows import dataset_file
from ..store.parquet import read_sparse
from ..store.schema import DATASET
from ..store.split import TRAIN, VALIDATION
from ..store.store import DATASET_FOLDER, Store

_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_TRANSLATIONS = frozenset({"moveahead", "moveback", "moveright", "moveleft"})
_PRIMITIVE = re.compile(r"(pick|place|push)\(")


@dataclass(frozen=True)
class LoggedFailure:
    """A labelled failure as its log shows it. ``T`` is the number of steps."""

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
    """Level, for fitting alone; empty in a failure that a predictor is asked about."""
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
    """Read a value of the compact log: JSON where it is some, else the text itself."""
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


def fit_last_step(train: Sequence[LoggedFailure]) -> Predictor:
    """Guess the last step."""
    mode = _mode(train)
    return lambda failure: Guess(failure.last, mode)


def _mode(train: Sequence[LoggedFailure]) -> str:
    return most_common([each.failure_mode for each in train])


# What the log says by arithmetic, an environment at a time


def fit_arithmetic(train: Sequence[LoggedFailure]) -> Predictor:
    """Read the label off the log as far as sums can: stages or metres against turns, falls, wasted turns.

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
    """Return the first step at which more than ``allowance`` turns were wasted; the last step where there is none."""
    return min(bisect_right(wasted, allowance), len(wasted) - 1)


def _best_allowance(train: Sequence[LoggedFailure]) -> int:
    wasted = [_wasted(each) for each in train]

    def misses(allowance: int) -> int:
        return sum(_step_beyond(sums, allowance) != each.pivot_step for sums, each in zip(wasted, train, strict=True))

    longest = max(len(each.actions) for each in train)
    # A step wastes two turns at most; a horizon is a number of a store that others may have written.
    return min(range(min(2 * longest + 1, max(each.horizon for each in train))), key=misses)


def _first_fatal(needed: Sequence[float], horizon: int) -> int:
    """Return the first step after which more is needed than turns are left; the last step where there is none."""
    return next((t for t, amount in enumerate(needed) if amount > horizon - 1 - t), len(needed) - 1)


def _carried(failure: LoggedFailure, name: str) -> list[float] | None:
    """Return a field of every step, a missing one carried forward (back, at the start); None where it is nowhere."""
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
    """Stages that are open against turns that are left, one stage a turn."""
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
    """The last submission; its score against that of the one before."""
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

PREDICTORS: Mapping[str, Callable[[Sequence[LoggedFailure]], Predictor]] = {
    "majority": fit_majority,
    "last step": fit_last_step,
    "arithmetic": fit_arithmetic,
}
"""Functions that fit a predictor on the training failures (at least one) of one environment, in the order of tables."""


def accuracy(predictor: Predictor, failures: Sequence[LoggedFailure]) -> float:
    """Return the share of failures, of which there is at least one, whose step a predictor names."""
    return sum(predictor(each).step == each.pivot_step for each in failures) / len(failures)


# What they reach on a store's dataset: an Analyzer that looks at pictures has to exceed it

AT_MOST = 20_000
"""Records of a side that are read, the first ones: more move a share by tenths of a percent and fill the memory."""

_COLUMNS = ["env", "horizon", "actions", "action_log", "pivot_step", "failure_mode"]


@dataclass(frozen=True, slots=True)
class Reach:
    """Accuracy of one predictor in one environment, 0 to 1; None if the split has no failures."""

    env: str
    predictor: str
    train: int
    """Number of failures that it was fitted on."""
    validation: int
    """Number of held-out failures."""
    pivot_train: float
    """Share of the failures that it was fitted on whose step it names."""
    pivot_validation: float | None
    mode_validation: float | None

    CELLS: ClassVar[tuple[str, ...]] = ("predictor", "pivot % train", "pivot % validation", "mode % validation")
    """Headings of the cells."""

    @property
    def cells(self) -> list[str]:
        """Cells of a table row, without the environment."""
        shares = (self.pivot_train, self.pivot_validation, self.mode_validation)
        return [self.predictor, *("–" if share is None else f"{100 * share:.1f}" for share in shares)]


def dataset_failures(store: Store, env: str, side: str, folder: str = DATASET_FOLDER) -> list[LoggedFailure]:
    """Read the first ``AT_MOST`` records of one environment on one side of the split, without their pictures.

    Raises:
        StoreError: a file of the dataset is missing or cannot be read.
    """
    failures: list[LoggedFailure] = []
    for shard in store.config.shards():
        if shard.env == env and len(failures) < AT_MOST:
            name = dataset_file(folder, DATASET, shard, side)
            rows = read_sparse(store.storage, name, DATASET, _COLUMNS).slice(0, AT_MOST - len(failures)).to_pylist()
            failures += map(LoggedFailure.of_record, rows)
    return failures


def predictors_reach(store: Store, folder: str = DATASET_FOLDER) -> list[Reach]:
    """Return what every predictor reaches in every environment; one without training records has none.

    Raises:
        StoreError: a file of the dataset is missing or cannot be read.
    """
    reached: list[Reach] = []
    for env in store.config.environments:
        train, validation = (dataset_failures(store, env, side, folder) for side in (TRAIN, VALIDATION))
        for name, fit in PREDICTORS.items() if train else ():
            predictor = fit(train)
            pivot = accuracy(predictor, validation) if validation else None
            mode = _right_modes(predictor, validation) if validation else None
            reached.append(Reach(env, name, len(train), len(validation), accuracy(predictor, train), pivot, mode))
    return reached


def _right_modes(predictor: Predictor, failures: Sequence[LoggedFailure]) -> float:
    return sum(predictor(each).mode == each.failure_mode for each in failures) / len(failures)
