"""The figures of a file of predictions, computed offline from items, truths and rows; intervals are over levels.

Every figure is a number where higher is better, and 1 is the best. A reply that cannot be read gets the worst value of
its figure, so silence never pays. A figure is computed twice, with the strict and with the lenient reader.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...core.intervals import Estimate, figure_of, mean_of, sums_by_level
from .items import Benchmark, Item, Truth
from .predictions import READERS, Answer, Prediction, Predictions, Reader, read_answer

TASKS = ("twin", "pivot", "mode", "safe", "credit")
"""Tasks in the order of tables; pivot and mode share the question ``locate``."""

MAIN: Mapping[str, str] = {
    **{"twin": "pairs", "pivot": "correct", "mode": "macro-F1", "safe": "correct", "credit": "top-1"}
}
"""Figure of each task that tables and pictures show first."""

UNREADABLE_CORRELATION = -1.0
BINS = 10
"""Number of bins of equal width, for the reliability of probabilities."""


@dataclass(frozen=True, slots=True)
class Share:
    """A mean of numbers between 0 and 1, with its interval."""

    value: float
    low: float
    high: float
    records: int

    def row(self) -> dict[str, Any]:
        """Return the share as JSON data."""
        return asdict(self)


def share(values: Sequence[float], levels: Sequence[str]) -> Share:
    """Return the mean of ``values`` with its interval over ``levels``.

    Records of a single level do not generalise: their interval is 0 to 1.

    Args:
        values: one number per record, 0 to 1; at least one.
        levels: level of each record.

    Raises:
        ValueError: ``values`` is empty, or the lengths differ.
    """
    return _share(mean_of(*sums_by_level(values, levels)), len(values))


def _share(estimate: Estimate, records: int) -> Share:
    interval = estimate.share()
    return Share(interval.value, interval.low, interval.high, records)


@dataclass(frozen=True, slots=True)
class Turns:
    """Credit of the turns of one episode; ``reach`` is None where a file has no probabilities."""

    credit: Sequence[float]
    value: Sequence[float]
    reach: Sequence[float] | None


UNREADABLE = Answer(pivot_step=-9, failure_mode="unreadable")
"""Answer in place of none: no truth equals it, no step is next to it, and its set of actions is empty."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One item with its truth and its answer as read by one reader."""

    item: Item
    truth: Truth
    answer: Answer = UNREADABLE
    turns: Turns | None = None
    problem: str | None = None
    """Reason why the answer is missing."""


def score(benchmark: Benchmark, predictions: Predictions) -> dict[str, Any]:
    """Return every figure of a checked file as JSON data.

    Args:
        benchmark: the benchmark.
        predictions: result of :func:`.predictions.read_predictions`.
    """
    header = predictions.header
    groups: dict[tuple[str, str, str], list[Item]] = {}
    for item in benchmark.items.values():
        if header.covers(item):
            groups.setdefault((item.question, item.env, item.log), []).append(item)
    cells: list[dict[str, Any]] = []
    for (question, env, log), items in groups.items():
        for task in ("pivot", "mode") if question == "locate" else (question,):
            place = {"task": task, "env": env, "log": log}
            records = [
                item for item in items if task != "mode" or benchmark.truths[item.item_id].pivot_step is not None
            ]
            if records:  # else it has no failure, so no mode
                cells.append({**place, **_cell(task, benchmark, records, predictions)})
    cells.sort(key=lambda cell: (TASKS.index(cell["task"]), cell["env"], cell["log"]))
    return {
        "benchmark": benchmark.facts["version"],
        "fingerprint": benchmark.fingerprint,
        "source": benchmark.facts.get("source"),
        "levels_on_both_sides": benchmark.facts.get("levels_on_both_sides", 0),
        "name": header.name,
        "settings": dict(header.settings),
        "cells": cells,
        "usage": _usage(list(predictions.rows.values())),
    }


def _usage(rows: Sequence[Prediction]) -> dict[str, Any]:
    """Return counts of rows by status and the sums of what was measured; None where no row has a number."""

    def total(name: str) -> float | None:
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        return sum(values) if values else None

    statuses = [row.status for row in rows]
    return {
        "items": len(rows),
        **{status: statuses.count(status) for status in ("answered", "refused", "unanswered")},
        **{name: total(name) for name in ("prompt_tokens", "completion_tokens", "seconds", "cost")},
        "left_out": sorted({name for row in rows for name in row.left_out or ()}),
    }


def _cell(task: str, benchmark: Benchmark, items: Sequence[Item], predictions: Predictions) -> dict[str, Any]:
    """Return the figures of one task over items of one environment and log."""
    truths = [benchmark.truths[item.item_id] for item in items]
    rows = [predictions.rows[item.item_id] for item in items]
    levels = [truth.pair or truth.level for truth in truths]
    judged = {reader: [_judged(*each, reader) for each in zip(items, truths, rows, strict=True)] for reader in READERS}
    pairs = zip(judged["strict"], judged["lenient"], strict=True)
    problems = Counter(each.problem for each in judged["lenient"] if each.problem is not None)

    def part(values: Iterable[bool]) -> dict[str, Any]:
        return share(list(map(float, values)), levels).row()

    return {
        "records": len(items),
        "levels": len(set(levels)),
        "chance": sum(chance(task, item, null="source" not in benchmark.facts) for item in items) / len(items),
        "figures": {reader: _figures(task, judged[reader]) for reader in READERS},
        "read": {reader: part(each.problem is None for each in judged[reader]) for reader in READERS},
        "refused": part(strict.problem == lenient.problem == "refused" for strict, lenient in pairs),
        "unanswered": part(row.status == "unanswered" for row in rows),
        "problems": dict(sorted(problems.items())),
    }


def chance(task: str, item: Item, *, null: bool = True) -> float:
    """Return the score of a guess by which every answer is as likely as another; of ``twin`` that of a pair.

    ``null`` says whether no pivot is an answer.
    """
    steps, choices = item.num_steps, len(item.choices)
    answers = {"twin": (steps + 1) ** 2, "pivot": steps + null, "mode": choices, "safe": 2**choices, "credit": steps}
    return 1 / answers[task]


def _judged(item: Item, truth: Truth, row: Prediction, reader: Reader) -> Judged:
    """Return the answer of a row, or the reason why there is none."""
    if row.status != "answered":
        return Judged(item, truth, problem=row.status)
    if row.credit is not None:
        value = row.value if row.value is not None else np.cumsum(row.credit).tolist()
        return Judged(item, truth, Answer(), Turns(row.credit, value, row.reach))
    answer = read_answer(row.reply or "", item, reader)
    if isinstance(answer, str):
        return Judged(item, truth, problem=answer)
    if item.question != "credit":
        return Judged(item, truth, answer)
    return Judged(item, truth, answer, Turns(np.diff(answer.reach, prepend=1.0).tolist(), answer.reach, answer.reach))


# Figures of a task


def _figures(task: str, judged: Sequence[Judged]) -> dict[str, Any]:
    if task == "mode":
        return _mode_figures(judged)
    if task == "credit":
        return _credit_figures(judged)
    if task == "twin":
        return _pair_figures(judged)
    levels = [each.truth.level for each in judged]
    if task == "safe":
        sets = [(each.answer.safe_actions, {*each.truth.safe_actions}) for each in judged]
        overlap = [len(mine & true) / len(mine | true) for mine, true in sets]
        whole = [float(mine == true) for mine, true in sets]
        return {"correct": share(whole, levels).row(), "overlap": share(overlap, levels).row()}
    steps = [(each.answer.pivot_step, each.truth.pivot_step) for each in judged]
    right = [mine == true for mine, true in steps]
    near = [mine is not None and true is not None and abs(mine - true) <= 1 for mine, true in steps]
    both = [hit and j.answer.failure_mode == j.truth.failure_mode for hit, j in zip(right, judged, strict=True)]
    lost = [index for index, each in enumerate(judged) if each.truth.pivot_step is not None]
    never = [index for index, each in enumerate(judged) if each.truth.pivot_step is None]
    columns = (("correct", right, range(len(judged))), ("failures", right, lost), ("within 1", near, lost))
    columns = (*columns, ("no error", right, never), ("both", both, range(len(judged))))
    return {name: _part(values, levels, chosen) for name, values, chosen in columns}


def _part(values: Sequence[float], levels: Sequence[str], chosen: Sequence[int]) -> dict[str, Any] | None:
    """Return the share over some of the records; None without any."""
    if not chosen:
        return None
    return share([float(values[index]) for index in chosen], [levels[index] for index in chosen]).row()


def _pair_figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Return the share of pairs of which both pivots are right, and that of the single items."""
    right: dict[str, list[float]] = {}
    for each in judged:
        right.setdefault(each.truth.pair, []).append(float(each.answer.pivot_step == each.truth.pivot_step))
    both = [min(hits) for hits in right.values()]
    items = [hit for hits in right.values() for hit in hits]
    pairs = [pair for pair, hits in right.items() for _ in hits]
    return {"pairs": share(both, list(right)).row(), "items": share(items, pairs).row()}


def _mode_figures(judged: Sequence[Judged]) -> dict[str, Any]:
    levels = [each.truth.level for each in judged]
    named = [each.answer.failure_mode for each in judged]
    true = [each.truth.failure_mode for each in judged]
    accuracy = share([float(guess == mode) for guess, mode in zip(named, true, strict=True)], levels)
    return {"correct": accuracy.row(), "macro-F1": macro_f1(named, true, levels).row()}


def macro_f1(named: Sequence[str | None], true: Sequence[str | None], levels: Sequence[str]) -> Share:
    """Return the mean over the true modes of the harmonic mean of precision and recall, with its interval over levels.

    Without the levels that have a mode, the mode is left out.
    """
    modes = sorted({mode for mode in true if mode is not None})
    places = {level: index for index, level in enumerate(dict.fromkeys(levels))}
    counts = np.zeros((len(places), 3 * len(modes)))  # per level: hits, namings and records of each mode
    for guess, mode, level in zip(named, true, levels, strict=True):
        row = counts[places[level]]
        for index, each in enumerate(modes):
            row[3 * index : 3 * index + 3] += (guess == mode == each, guess == each, mode == each)

    def means(sums: Any) -> Any:
        hits, namings, records = (sums[:, column::3] for column in range(3))
        scores = np.where(records > 0, 2 * hits / np.maximum(namings + records, 1), 0)
        return scores.sum(axis=1) / (records > 0).sum(axis=1)

    return _share(figure_of(counts, means), len(true))


def _credit_figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Return AUC and top-1 at the pivot, rank correlation with need, Brier and reliability; see the docs for each."""
    lost = [each for each in judged if each.truth.pivot_step is not None]
    figures: dict[str, Any] = {"top-1": None, "AUC": None, "need": None, "Brier": None, "reliability": None}
    if lost:
        levels = [each.truth.level for each in lost]
        figures["top-1"] = share([top_one(each) for each in lost], levels).row()
        several = [each for each in lost if each.item.num_steps > 1]
        if several:
            figures["AUC"] = share(
                [area_at_pivot(each) for each in several], [each.truth.level for each in several]
            ).row()
    ranked = [(each, correlation) for each in judged if (correlation := need_correlation(each)) is not None]
    if ranked:
        levels = [each.truth.level for each, _ in ranked]
        halved = share([(1 + value) / 2 for _, value in ranked], levels)  # a correlation is from -1 to 1
        value, low, high = (2 * each - 1 for each in (halved.value, halved.low, halved.high))
        figures["need"] = Share(value, low, high, len(ranked)).row()
    answers = [each.turns for each in judged if each.turns is not None]
    if not answers or any(
        turns.reach is not None for turns in answers
    ):  # does not apply to credit without probabilities
        figures |= {name: each.row() for name, each in reach_figures(judged).items()}
    return figures


def top_one(judged: Judged) -> float:
    """Return the weight of the pivot among the turns with the least credit: 1 if it is the only one."""
    if judged.turns is None or judged.truth.pivot_step is None:
        return 0.0
    least = min(judged.turns.credit)
    lowest = [turn for turn, credit in enumerate(judged.turns.credit) if credit == least]
    return (judged.truth.pivot_step in lowest) / len(lowest)


def area_at_pivot(judged: Judged) -> float:
    """Return the share of the other turns that have more credit than the pivot; an equal credit counts half."""
    if judged.turns is None or judged.truth.pivot_step is None:
        return 0.0
    credit, pivot = judged.turns.credit, judged.truth.pivot_step
    others = [each for turn, each in enumerate(credit) if turn != pivot]
    return sum((each > credit[pivot]) + 0.5 * (each == credit[pivot]) for each in others) / len(others)


def need_correlation(judged: Judged) -> float | None:
    """Return Spearman's rank correlation of the values of states with minus their needs; None if no need differs.

    A need beyond the horizon counts as one turn more than it. Values that are all equal have a correlation of 0.
    """
    beyond = judged.item.horizon + 1
    needs = np.array([beyond if need is None else need for need in judged.truth.need], float)
    if len(set(needs.tolist())) < 2:
        return None
    if judged.turns is None:
        return UNREADABLE_CORRELATION
    ours, theirs = ranks(np.array(judged.turns.value, float)), ranks(-needs)
    ours, theirs = ours - ours.mean(), theirs - theirs.mean()
    scale = float(np.sqrt((ours**2).sum() * (theirs**2).sum()))
    return float((ours * theirs).sum()) / scale if scale else 0.0


def ranks(values: Any) -> Any:
    """Return the ranks of some numbers; equal numbers share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def reach_figures(judged: Sequence[Judged]) -> dict[str, Share]:
    """Return one minus the Brier score of the probabilities of reach over all turns, and one minus their bias in bins.

    The second, the reliability, is that of a constant, too, which knows nothing. A turn without a probability has an
    error of 1 in both.
    """
    places = {level: index for index, level in enumerate(dict.fromkeys(each.truth.level for each in judged))}
    counts = np.zeros(
        (len(places), BINS + 3)
    )  # per level: excess of each bin, missing turns, squared errors, all turns
    for each in judged:
        row = counts[places[each.truth.level]]
        chances = None if each.turns is None else each.turns.reach
        row[-1] += each.item.num_steps
        if chances is None:
            row[-3:-1] += each.item.num_steps
            continue
        for probability, reached in zip(chances, each.truth.within_reach, strict=True):
            row[min(int(probability * BINS), BINS - 1)] += probability - reached
            row[-2] += (probability - reached) ** 2

    def brier(sums: Any) -> Any:
        return 1 - sums[:, -2] / sums[:, -1]

    def reliability(sums: Any) -> Any:
        return 1 - (np.abs(sums[:, :BINS]).sum(axis=1) + sums[:, -3]) / sums[:, -1]

    figures = {"Brier": brier, "reliability": reliability}
    return {name: _share(figure_of(counts, figure), len(judged)) for name, figure in figures.items()}
