"""Shares with their intervals: against scipy, by simulation, and with records in place of levels."""

import random

import numpy as np
import pytest
from pivot.core.intervals import mean_of, student
from pivot.training.evaluation.scores import share


def test_levels_of_one_record_give_wilsons_interval() -> None:
    """With one record per level the variance is that of independent records, but for n - 1 and Student's t."""
    stats = pytest.importorskip("scipy.stats")
    values = [1.0] * 130 + [0.0] * 270
    theirs = stats.binomtest(130, 400).proportion_ci(method="wilson")
    ours = share(values, [str(place) for place in range(400)])
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=4e-4)


def test_edges_have_a_width() -> None:
    assert share([1.0, 1.0], ["a", "b"]).low == 0.0, "two levels say nothing about others"
    assert share([1.0, 1.0, 1.0], ["a", "b", "c"]).low == pytest.approx(0.4385, abs=1e-4), "3 / (3 + 1.96 squared)"
    alike = share([1.0, 0.0] * 3, ["a", "a", "b", "b", "c", "c"])
    assert alike.low < 0.25 and alike.high > 0.75, "levels that agree by chance"


def test_quantiles_of_student_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (2, 3, 3.5, 4, 5.5, 9, 30, 1000):
        assert student(freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=2e-3)


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5])
@pytest.mark.parametrize("levels", [3, 6, 10, 20, 60])
def test_intervals_of_shares_have_the_stated_coverage(levels: int, rate: float) -> None:
    """Eight episodes a level whose chances differ between levels, with a correlation of 0.2 inside of one."""
    rng = np.random.default_rng(levels)
    inside, trials, counts = 0, 1500, np.full(levels, 8.0)
    for _ in range(trials):
        chances = rng.beta(4 * rate, 4 * (1 - rate), levels)
        interval = mean_of(rng.binomial(8, chances).astype(float), counts).share()
        inside += interval.low <= rate <= interval.high
    # Three standard errors of the simulation beside what is promised.
    assert inside / trials >= (0.91 if levels < 20 else 0.93) - 0.02
    assert levels < 20 or inside / trials <= 0.98 + 0.011


@pytest.mark.parametrize("levels", [3, 6, 20, 60])
def test_intervals_of_means_have_the_stated_coverage(levels: int) -> None:
    rng = np.random.default_rng(levels)
    inside, trials, counts = 0, 1500, np.full(levels, 8.0)
    for _ in range(trials):
        of_levels = rng.normal(3.0, 2.0, levels)
        interval = mean_of(rng.normal(8 * of_levels, 3.0), counts).amount()
        inside += interval.low <= 3.0 <= interval.high
    assert 0.93 <= inside / trials <= 0.98


def test_levels_count_and_not_episodes() -> None:
    """Eight episodes a level that all go the same way are one observation: the interval must not shrink with them."""
    rng = random.Random(1)
    outcome = {f"level {each}": float(rng.random() < 0.5) for each in range(50)}
    levels = [level for level in outcome for _ in range(8)]
    values = [outcome[level] for level in levels]
    one = share(list(outcome.values()), list(outcome))
    many = share(values, levels)
    wrong = share(values, [str(number) for number in range(len(values))])
    assert (many.low, many.high) == pytest.approx((one.low, one.high))
    assert wrong.high - wrong.low < 0.5 * (many.high - many.low)


def test_no_records_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="at least one"):
        share([], [])
