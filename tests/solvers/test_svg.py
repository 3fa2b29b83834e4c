"""Labels of SVG episodes: the last submission, the mode by the last two scores, the limit of 0.01 exact both ways."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.core import plugins
from pivot.solvers.base import Case, Unsolved, Verdict, prove
from pivot.solvers.svg.solver import SvgSolver
from pivot.testing import altered

EMPTY = object()
BROKEN = object()


def case(*submissions: Any, horizon: int | None = None) -> Case:
    """An episode of submissions: a score each, or ``BROKEN``, or ``EMPTY``."""
    steps = [
        {"valid_svg": s not in (EMPTY, BROKEN), "average_score": 0.0 if s in (EMPTY, BROKEN) else s}
        for s in submissions
    ]
    actions = ["empty" if s is EMPTY else "svg" for s in submissions]
    return Case("target", actions, horizon or max(2, len(actions)), steps)


def verdict(*submissions: Any, horizon: int | None = None) -> Verdict:
    answer = SvgSolver().certify([case(*submissions, horizon=horizon)])[0]
    assert isinstance(answer, Verdict), answer
    return answer


TABLE = [
    ((0.5, 0.5), "stagnation"),
    ((0.5, 0.51), "stagnation"),  # 0.01 up belongs to stagnation
    ((0.5, 0.49), "stagnation"),  # and 0.01 down
    ((0.5, 0.51 + 1e-6), "mismatch"),
    ((0.5, 0.49 - 1e-6), "regression"),
    ((0.79, 0.8), "stagnation"),  # a little more than 0.01 in binary
    ((0.9,), "mismatch"),  # a single submission
    ((EMPTY,), "format"),
    ((BROKEN,), "format"),
    ((0.9, EMPTY), "format"),
    ((0.9, BROKEN), "format"),
    ((EMPTY, 0.4), "mismatch"),  # the empty submission before scores 0
    ((BROKEN, 0.01), "stagnation"),
    ((EMPTY, 0.010001), "mismatch"),
    ((0.9, 0.2, 0.5), "mismatch"),  # only the submission right before counts
    ((0.2, 0.9, 0.5), "regression"),
]


@pytest.mark.parametrize(("submissions", "mode"), TABLE)
def test_modes(submissions: tuple[Any, ...], mode: str) -> None:
    answer = verdict(*submissions)
    last = len(submissions) - 1
    assert (answer.pivot_step, answer.failure_mode) == (last, mode)
    facts = answer.certificate
    assert (facts.kind, facts.unit) == ("convention", "score")
    horizon = max(2, len(submissions))
    assert (facts.budget_before, facts.budget_after) == (horizon - last, horizon - last - 1)
    assert (facts.before, facts.after, facts.reachable_after) == (None, None, None)
    scores = [0.0 if s in (EMPTY, BROKEN) else s for s in submissions]
    assert facts.raw_after == scores[-1] and facts.raw_before == (scores[-2] if last else None)
    assert not (answer.fallback or answer.infeasible_at_start or answer.witness or answer.feasible_actions)
    assert prove("svg", case(*submissions), answer).problems == ()


@given(st.integers(0, 999_999), st.integers(-20_000, 20_000))
@settings(max_examples=150, deadline=None)
def test_the_limit_is_exact_in_millionths(before: int, change: int) -> None:
    """Scores with six decimals are compared as integers, without rounding errors of floats."""
    after = before + change
    if not 0 <= after < 1_000_000:
        return
    expected = "stagnation" if abs(change) <= 10_000 else ("mismatch" if change > 0 else "regression")
    assert verdict(before / 1e6, after / 1e6).failure_mode == expected


scores = st.one_of(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.0, 0.01, 0.5, 0.49, 0.51, 0.4900000005, 0.5100000005, 5e-324, 1 - 2**-53]),
)
submissions = st.lists(st.one_of(scores, st.just(EMPTY), st.just(BROKEN)), min_size=1, max_size=5)


@given(submissions, st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_a_verdict_is_proved_by_the_second_reading(played: list[Any], spare: int) -> None:
    episode = case(*played, horizon=len(played) + spare)
    answer = SvgSolver().certify([episode])[0]
    assert isinstance(answer, Verdict) and prove("svg", episode, answer).problems == ()
    if answer.failure_mode == "regression":
        lost = Fraction(episode.steps[-2]["average_score"]) - Fraction(episode.steps[-1]["average_score"])
        assert lost > Fraction(1, 100)


@pytest.mark.parametrize("played", [(0.5, 0.3), (0.5, 0.5), (0.5, 0.8), (0.5, BROKEN)])
def test_every_altered_field_is_found(played: tuple[Any, ...]) -> None:
    episode = case(*played)
    wrong = list(altered(verdict(*played), episode, SvgSolver.modes, SvgSolver.actions))
    assert len(wrong) > 20
    for name, each in wrong:
        assert not prove("svg", episode, each).holds, name


def bad_logs() -> Iterator[tuple[Case, str]]:
    good = case(0.4, 0.6)
    yield replace(good, actions=[], steps=[]), "0 actions"
    yield replace(good, horizon=1), "2 actions"
    yield replace(good, steps=good.steps[:1]), "1 steps for 2 actions"
    yield replace(good, steps=()), "0 steps"
    yield replace(good, actions=["svg", "up"]), "unknown action 'up' at step 1"
    for score in (None, float("nan"), float("inf"), True, "0.5", -0.1, 1.1, 10**400):
        yield (
            replace(good, steps=[good.steps[0], {"valid_svg": True, "average_score": score}]),
            "average_score of step 1",
        )
    for valid in (None, 1, "true"):
        yield replace(good, steps=[good.steps[0], {"valid_svg": valid, "average_score": 0.1}]), "valid_svg of step 1"
    yield replace(good, steps=[good.steps[0], {"valid_svg": False, "average_score": 0.1}]), "scores 0"
    yield replace(good, actions=["empty", "svg"]), "submitted nothing"


@pytest.mark.parametrize(("log", "words"), list(bad_logs()))
def test_a_log_that_cannot_be_is_not_labelled(log: Case, words: str) -> None:
    answer = SvgSolver().certify([log])[0]
    assert isinstance(answer, Unsolved) and answer.reason == "bad_episode" and words in answer.detail
    assert not prove("svg", log, verdict(0.4, 0.6)).holds


def test_a_reproduced_target_is_no_failure() -> None:
    answer = SvgSolver().certify([case(0.5, 1.0)])[0]
    assert isinstance(answer, Unsolved) and answer.reason == "not_a_failure"
    assert not prove("svg", case(0.5, 1.0), verdict(0.5, 0.9)).holds


def test_solver_and_environment_name_the_same_modes() -> None:
    profile = plugins.load("environments", "svg").profile
    assert profile.failure_modes == SvgSolver.modes and profile.unusable_action == "empty"
