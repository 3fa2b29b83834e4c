"""Trivial predictors: by hand on small logs, and the arithmetic reading against the solvers on random episodes."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from pivot.datasets.export.predictors import LoggedFailure, fit_arithmetic, fit_majority
from pivot.labeling.action_log import action_log
from pivot.solvers.base import Case, Solver, Verdict
from pivot.solvers.navigation import NavigationSolver
from pivot.solvers.primitiveskill import PrimitiveSkillSolver
from pivot.tests.navigation_episodes import printed_episode, walks
from pivot.tests.primitiveskill_episodes import random_log


def puzzle(moves: Sequence[str], pivot: int, mode: str = "timeout", horizon: int = 9) -> LoggedFailure:
    """A Sokoban log; a move that ends with ``!`` changed nothing."""
    infos = [{"moved": not move.endswith("!")} for move in moves]
    return LoggedFailure("sokoban", horizon, [move.rstrip("!") for move in moves], infos, pivot, mode)


TRAIN = [
    puzzle(["up", "left!", "up"], 1, "deadlock"),
    puzzle(["up", "up", "left"], 1),
    puzzle(["up", "down"], 0),
    puzzle(["up", "down"], 0),
    puzzle(["invalid!", "down", "up", "left", "left"], 1),
]


def test_the_majority_is_the_most_frequent_step_or_the_last_one() -> None:
    usual = fit_majority(TRAIN)
    assert usual(puzzle(["up", "up", "up"], 0)) == (1, "timeout")
    assert usual(puzzle(["up"], 0)) == (0, "timeout")


def test_wasted_turns_are_counted_against_the_allowance_that_fits_best() -> None:
    """An idle turn costs one, a move back two: with an allowance of two the third wasted turn is the pivot."""
    train = [
        puzzle(["up!", "up!", "up!", *["up"] * 6], 2),
        puzzle(["up", "down", "up!", *["up"] * 6], 2),
        puzzle(["up", "left!", "right", "left", *["up"] * 5], 3),
    ]
    predict = fit_arithmetic(train)
    assert [predict(each).step for each in train] == [2, 2, 3]
    assert predict(puzzle(["up"] * 9, 0)).step == 8


def test_an_episode_that_ended_early_was_lost_with_its_last_step() -> None:
    guess = fit_arithmetic(TRAIN)(puzzle(["up", "up!", "up!"], 0))
    assert (guess.step, guess.mode) == (2, "deadlock")


def test_a_record_is_read_back_from_its_log() -> None:
    case = printed_episode()
    fields = ("moved", "last_action_success", "action_is_valid", "dist", "remaining_turns")
    record: dict[str, Any] = {"env": "navigation", "horizon": 25, "pivot_step": 22, "failure_mode": "stagnation"}
    record |= {"actions": [*case.actions], "action_log": action_log(fields, case.actions, case.steps)}
    failure = LoggedFailure.of_record(record)
    assert failure.infos == list(case.steps)
    guess = fit_arithmetic([failure])(failure)
    assert (guess.step, guess.mode) == (22, "stagnation")
    bare = LoggedFailure.of_record(record | {"action_log": action_log((), case.actions, case.steps)})
    assert fit_arithmetic([bare])(bare).step == 24, "a log of actions alone tells no distance"


def labelled(env: str, solver: Solver, cases: Sequence[Case]) -> list[LoggedFailure]:
    verdicts = zip(cases, solver.certify(cases), strict=True)
    return [
        LoggedFailure(env, case.horizon, case.actions, case.steps, verdict.pivot_step, verdict.failure_mode)
        for case, verdict in verdicts
        if isinstance(verdict, Verdict) and not verdict.infeasible_at_start
    ]


def test_arithmetic_on_the_log_decides_navigation_and_primitiveskill() -> None:
    """With exact numbers in the log this is the solver's rule, so these pivots do not test vision."""
    rng = random.Random(5)
    failures = labelled("navigation", NavigationSolver(), walks(5, 150))
    logs = [case for case in (random_log(rng) for _ in range(400)) if case.horizon >= 6]
    # The log does not say how many stages were open before step 0, which is the pivot only where a log breaks off.
    failures += [each for each in labelled("primitiveskill", PrimitiveSkillSolver(), logs) if each.pivot_step]
    assert len(failures) > 200
    for failure in failures:
        guess = fit_arithmetic([failure])(failure)
        assert (guess.step, guess.mode) == (failure.pivot_step, failure.failure_mode)


@pytest.mark.parametrize(
    ("scores", "valid", "mode"),
    [
        ((0.70, 0.87), True, "mismatch"),
        ((0.70, 0.71), True, "stagnation"),
        ((0.72, 0.70), True, "regression"),
        ((0.70, 0.00), False, "format"),
        ((0.70,), True, "mismatch"),
    ],
)
def test_svg_is_read_off_the_last_two_scores(scores: Sequence[float], valid: bool, mode: str) -> None:
    infos = [{"valid_svg": True, "average_score": score} for score in scores]
    infos[-1]["valid_svg"] = valid
    failure = LoggedFailure("svg", 2, ["svg"] * len(scores), infos, len(scores) - 1, mode)
    guess = fit_arithmetic([failure])(failure)
    assert (guess.step, guess.mode) == (failure.pivot_step, mode)
