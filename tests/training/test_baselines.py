"""Learned baselines: they find what the log says and no more, and never see the label that they are asked for."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pivot.datasets.predictors import LoggedFailure
from pivot.training.evaluation.baselines import (
    CHECK_SHARE,
    LEARNED,
    PredictAll,
    baseline_table,
    best_of,
    can_be_sampled_by_class,
    check_rows,
    fit_boosting,
    fit_transformer,
    score_guesses,
)
from pivot.training.evaluation.log_features import LogFeatures, action_kind

learned = pytest.mark.train
"""Needs scikit-learn and PyTorch."""


def logs(count: int, seed: int) -> list[LoggedFailure]:
    """Failures whose pivot is the first idle step; the first action determines the mode."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        pivot = rng.randrange(5)
        actions = [rng.choice(("up", "down", "left", "right")) for _ in range(6)]
        moved = [t != pivot and (t < pivot or rng.random() < 0.7) for t in range(6)]
        mode = "timeout" if actions[0] in ("up", "down") else "deadlock"
        infos = [{"moved": each, "remaining_turns": 5 - t} for t, each in enumerate(moved)]
        made.append(LoggedFailure("sokoban", 6, actions, infos, pivot, mode))
    return made


def test_features_hold_the_log_and_nothing_of_the_label() -> None:
    train = logs(30, 1)
    features = LogFeatures(train)
    for each in train:
        other = replace(each, pivot_step=5, failure_mode="format")
        assert np.array_equal(features.of(each), features.of(other), equal_nan=True)
        assert np.array_equal(features.flat(each), features.flat(other), equal_nan=True)
    rows = features.of(train[0])
    assert rows.shape == (6, features.width)
    assert rows[:, -2].tolist() == [0, 1, 2, 3, 4, 5]
    assert rows[-1, -3] == sum(not info["moved"] for info in train[0].infos)
    assert action_kind("pick(1,2,3)|place(4,5,6)") == "pick|place"


def test_scores_are_those_of_a_count() -> None:
    test = logs(40, 3)
    table = baseline_table(logs(60, 2), test, [str(each) for each in range(40)], learned=False).shares
    exact = [failure.pivot_step == 5 for failure in test]
    assert table["last step"]["pivot exact"].value == pytest.approx(sum(exact) / 40)
    near = [failure.pivot_step >= 4 for failure in test]
    assert table["last step"]["pivot within 1"].value == pytest.approx(sum(near) / 40)
    assert table["uniform"]["pivot exact"].value == pytest.approx(1 / 6)
    assert best_of(table) == max(table, key=lambda name: table[name]["pivot exact"].value)


@learned
@pytest.mark.parametrize("name", list(LEARNED))
def test_what_the_log_says_is_learned(name: str) -> None:
    train, test = logs(400, 4), logs(150, 5)
    guesses = LEARNED[name].fit(train, 0)(test)
    table = score_guesses(guesses, test, [str(each) for each in range(150)])
    assert table["pivot exact"].value > 0.85
    assert table["mode"].value > 0.9


def shuffled(failures: Sequence[LoggedFailure]) -> list[LoggedFailure]:
    """The same logs with the labels of others."""
    labels = [(each.pivot_step, each.failure_mode) for each in failures]
    random.Random(9).shuffle(labels)
    return [
        replace(each, pivot_step=step, failure_mode=mode) for each, (step, mode) in zip(failures, labels, strict=True)
    ]


@learned
@pytest.mark.parametrize("fit", [fit_boosting, fit_transformer])
def test_labels_without_a_cause_are_not_learned(fit: Callable[[Sequence[LoggedFailure], int], PredictAll]) -> None:
    """The control of the test above: a predictor that looks at the label it is asked for would pass both."""
    train, test = shuffled(logs(500, 6)), shuffled(logs(200, 7))
    table = score_guesses(fit(train, 0)(test), test, [str(each) for each in range(200)])
    assert table["pivot exact"].value < 0.35


@learned
@pytest.mark.parametrize("fit", [fit_boosting, fit_transformer])
def test_odd_training_sides(fit: Callable[[Sequence[LoggedFailure], int], PredictAll]) -> None:
    """One class, few records, missing fields, lengths and modes that training never had."""
    test: list[Any] = [replace(logs(1, 8)[0], failure_mode="budget")]
    test.append(LoggedFailure("sokoban", 6, ["sideways"], [{}], 0, "timeout"))
    train = [replace(each, pivot_step=2, failure_mode="timeout") for each in logs(4, 9)]
    guesses = fit(train, 0)(test)
    assert [guess.mode for guess in guesses] == ["timeout", "timeout"]
    assert guesses[1].step == 0


@learned
def test_a_side_too_small_to_learn_from_is_said_and_the_table_stands() -> None:
    train, test = logs(14, 11), logs(20, 12)
    assert len({each.pivot_step for each in train}) == 5
    levels = [str(each) for each in range(20)]
    table = baseline_table(train, test, levels)
    assert list(table.not_fitted) == ["gradient boosting"]
    assert table.not_fitted["gradient boosting"].startswith("found 14 failures to fit on, expected at least 45")
    assert {"majority", "arithmetic", "transformer"} <= set(table.shares)
    assert list(baseline_table(train[:1], test, levels).not_fitted) == list(LEARNED)
    assert not baseline_table(logs(45, 11), test, levels).not_fitted


RARE = [replace(each, failure_mode="budget") for each in logs(1, 14)]
LAST = [replace(each, pivot_step=5) for each in logs(2, 15)]


@learned
@pytest.mark.parametrize(("train", "least"), [(logs(400, 13) + RARE, 0.8), (logs(43, 13) + LAST, 0.15)])
def test_rare_classes_stop_no_fit(train: list[LoggedFailure], least: float) -> None:
    """A mode that one failure has, and more pivots than a tenth of the failures has places."""
    every = [[each.failure_mode for each in train], [each.pivot_step for each in train]]
    assert not all(map(can_be_sampled_by_class, every))
    for labels in every:
        check = check_rows(labels, 0)
        assert len(check) == math.ceil(CHECK_SHARE * len(train))
        assert {labels[place] for place in check} <= {each for k, each in enumerate(labels) if k not in check}
    test = logs(150, 16)
    table = score_guesses(fit_boosting(train, 0)(test), test, [str(each) for each in range(150)])
    assert table["pivot exact"].value > least
