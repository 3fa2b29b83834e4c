"""Shares with their intervals: against scipy and by hand, and what a wrong unit would give."""

import random

import numpy as np
import pytest
from pivot.training.evaluation.scores import share


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
