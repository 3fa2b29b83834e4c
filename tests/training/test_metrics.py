"""Metrics against a second implementation, intervals against scipy and by hand, and what a wrong unit would give."""

import random
from collections import Counter

import numpy as np
import pytest
from pivot.training.evaluation.metrics import (
    UNREAD,
    ScoredReading,
    by_mode,
    by_step,
    confusion,
    reliability,
    share,
    shares,
)

MODES = ("timeout", "deadlock")


def some(count: int, seed: int = 3) -> list[ScoredReading]:
    """Random records, a tenth of them unreadable, a third without a probability."""
    rng = random.Random(seed)
    return [
        ScoredReading(
            env="sokoban",
            level=f"level {rng.randrange(max(2, count // 5))}",
            num_steps=9,
            pivot_step=rng.randrange(9),
            failure_mode=rng.choice(MODES),
            read_step=rng.randrange(9),
            read_mode=rng.choice(MODES),
            readable=rng.random() > 0.1,
            probability=rng.choice((None, rng.random(), 1.0)),
        )
        for _ in range(count)
    ]


def test_shares_equal_a_count_by_hand() -> None:
    records = some(400)
    table = np.array(
        [(each.readable, each.read_step, each.pivot_step, each.read_mode == each.failure_mode) for each in records]
    )
    ok, off, mode = table[:, 0].astype(bool), np.abs(table[:, 1] - table[:, 2]), table[:, 3].astype(bool)
    expected = {
        "parsed": ok.mean(),
        "pivot exact": (ok & (off == 0)).mean(),
        "pivot within 1": (ok & (off < 2)).mean(),
        "mode": (ok & mode).mean(),
        "joint": (ok & mode & (off == 0)).mean(),
        "pivot, fallback counted": (off == 0).mean(),
    }
    result = shares(records)
    assert {name: each.value for name, each in result.items()} == pytest.approx(expected)
    assert all(each.low <= each.value <= each.high and each.records == 400 for each in result.values())
    for step, of_step in by_step(records).items():
        chosen = table[:, 2] == step
        assert of_step.value == pytest.approx((ok & (off == 0))[chosen].mean())
        assert of_step.records == chosen.sum()
    assert sum(each["mode"].records for each in by_mode(records).values()) == 400


def test_confusion_counts_every_record_once() -> None:
    records = some(300)
    for what in ("mode", "step"):
        expected = Counter(
            (each.failure_mode, each.read_mode if each.readable else UNREAD)
            if what == "mode"
            else (str(each.pivot_step), str(each.read_step) if each.readable else UNREAD)
            for each in records
        )
        table = confusion(records, what)
        assert {(row, column): n for row, cells in table.items() for column, n in cells.items() if n} == expected
    assert list(confusion(records, "step")) == [str(step) for step in range(9)]


def test_reliability_equals_numpy() -> None:
    records = some(500)
    rated = [(each.probability, each.step_is_right) for each in records if each.probability is not None]
    chances, right = np.array([p for p, _ in rated]), np.array([r for _, r in rated], float)
    place = np.minimum((chances * 10).astype(int), 9)
    error = sum(
        abs(chances[place == each].mean() - right[place == each].mean()) * (place == each).mean()
        for each in range(10)
        if (place == each).any()
    )
    result = reliability(records)
    assert result is not None
    assert result.error == pytest.approx(error)
    assert sum(each.records for each in result.bins) == result.records == len(rated)
    assert reliability([each for each in records if each.probability is None]) is None


def test_two_levels_by_hand() -> None:
    """Two draws of two levels: both the worse with chance 1/4, both the better with 1/4; the tails are these."""
    result = share([1.0, 1.0, 0.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b", "b", "b"])
    assert result.value == 0.5
    assert (result.low, result.high) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert share([1.0, 1.0], ["a", "a"]).low == 0.0, "one level says nothing about another"
    assert share([1.0, 1.0], ["a", "b"]).low == 1.0


def test_intervals_agree_with_scipy() -> None:
    """With as many records in each level the ratio is a plain mean of level means, which scipy can draw, too."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(7)
    levels = [f"{each}" for each in range(60) for _ in range(5)]
    means = rng.random(60)
    values = (rng.random(300) < np.repeat(means, 5)).astype(float)
    theirs = stats.bootstrap(
        (values.reshape(60, 5).mean(axis=1),), np.mean, n_resamples=4000, method="percentile", rng=rng
    ).confidence_interval
    ours = share(values.tolist(), levels)
    assert ours.low == pytest.approx(theirs.low, abs=0.012)
    assert ours.high == pytest.approx(theirs.high, abs=0.012)


def test_levels_are_drawn_and_not_episodes() -> None:
    """Eight episodes a level that all go the same way are one observation: the interval must not shrink with them."""
    rng = random.Random(1)
    outcome = {f"level {each}": float(rng.random() < 0.5) for each in range(50)}
    levels = [level for level in outcome for _ in range(8)]
    values = [outcome[level] for level in levels]
    one = share(list(outcome.values()), list(outcome))
    many = share(values, levels)
    wrong = share(values, [str(number) for number in range(len(values))])
    assert (many.low, many.high) == (one.low, one.high)
    assert wrong.high - wrong.low < 0.5 * (many.high - many.low)


def test_no_records_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one"):
        share([], [])
