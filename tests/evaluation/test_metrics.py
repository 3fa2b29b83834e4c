"""Shares with their intervals: against scipy, by simulation, and with records in place of levels."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pivot.core.intervals import mean_of
from pivot.training.evaluation.scores import Turns, share, top_one


def test_edges_have_a_width() -> None:
    assert share([1.0, 1.0], ["a", "b"]).low == 0.0, "two levels say nothing about others"
    for levels in ("abc", "aabbcc"):
        assert share([1.0] * len(levels), list(levels)).low == pytest.approx(0.4385, abs=1e-4), "3 / (3 + 1.96 squared)"
    alike = share([1.0, 0.0] * 3, ["a", "a", "b", "b", "c", "c"])
    assert alike.low < 0.25 and alike.high > 0.75, "levels that agree by chance"


def test_equal_credit_of_all_turns_hits_the_pivot_by_chance() -> None:
    judged: Any = SimpleNamespace(turns=Turns([0.0] * 5, [0.0] * 5, None), truth=SimpleNamespace(pivot_step=2))
    assert top_one(judged) == 1 / 5


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
