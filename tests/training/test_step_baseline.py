"""Baselines that answer every question of the benchmark: they find what a log says, no more, and never read truth."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pivot.datasets.predictors import LoggedFailure
from pivot.solvers.credit import TurnCredit
from pivot.tests.training.test_baselines import logs
from pivot.training.benchmark.step_baseline import Fitting, StepBaseline

OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def turns_of(each: LoggedFailure) -> list[TurnCredit]:
    """Turns that a log decides: the goal is lost at the pivot, and the opposite of an action is the safe one."""
    made: list[TurnCredit] = []
    for t, action in enumerate(each.actions):
        within = t < each.pivot_step
        needed = 6 - t if within else None
        made.append(
            TurnCredit(7 - t, needed, 0 if within else -1, within, None, t == each.pivot_step, (OPPOSITE[action],))
        )
    return made


def fitting(failures: Sequence[LoggedFailure]) -> list[Fitting]:
    """Failures as the baseline is fitted on them."""
    return [Fitting(each, True, turns_of(each)) for each in failures]


@pytest.mark.train
def test_pivot_mode_reach_need_and_safe_actions_are_read_from_the_log() -> None:
    test = logs(150, 5)
    fitted = StepBaseline(fitting(logs(400, 4)))
    judged = [fitted.judge(each) for each in test]
    pairs = list(zip(judged, test, strict=True))
    assert np.mean([said.pivot.argmax() == each.pivot_step for said, each in pairs]) > 0.9
    assert np.mean([said.mode == each.failure_mode for said, each in pairs]) > 0.85
    for said, each in pairs:
        assert said.reach is not None and said.need is not None
        assert said.pivot.sum() == pytest.approx(1) and said.pivot.shape == said.reach.shape == (len(each.actions),)
        assert (np.diff(said.reach) <= 0).all(), "what was lost stays lost"
    reached = [(said.reach > 0.5) == (np.arange(6) < each.pivot_step) for said, each in pairs if said.reach is not None]
    assert np.mean(reached) > 0.9
    needed = [
        said.need - [7 if turn.need_after is None else turn.need_after for turn in turns_of(each)]
        for said, each in pairs
        if said.need is not None
    ]
    assert np.abs(needed).mean() < 0.5
    named = [
        max(said.safe, key=lambda action, at=each.pivot_step, safe=said.safe: safe[action][at]) for said, each in pairs
    ]
    assert (
        np.mean([action == OPPOSITE[each.actions[each.pivot_step]] for action, each in zip(named, test, strict=True)])
        > 0.9
    )


@pytest.mark.train
def test_labels_without_a_cause_are_not_learned() -> None:
    """The control of the test above: a baseline that looked at its truth would pass both."""
    rng = random.Random(9)

    def without_cause(failures: list[LoggedFailure]) -> list[LoggedFailure]:
        steps = [each.pivot_step for each in failures]
        rng.shuffle(steps)
        return [replace(each, pivot_step=step) for each, step in zip(failures, steps, strict=True)]

    test = without_cause(logs(200, 7))
    fitted = StepBaseline(fitting(without_cause(logs(500, 6))))
    assert np.mean([fitted.judge(each).pivot.argmax() == each.pivot_step for each in test]) < 0.35
    asked = replace(test[0], pivot_step=(test[0].pivot_step + 1) % 5, failure_mode="budget")
    assert (fitted.judge(asked).pivot == fitted.judge(test[0]).pivot).all()


@pytest.mark.train
def test_an_environment_whose_solver_measures_nothing_has_a_pivot_and_a_mode() -> None:
    fitted = StepBaseline([replace(each, turns=()) for each in fitting(logs(100, 8))])
    said = fitted.judge(logs(1, 9)[0])
    assert said.reach is None and said.need is None and not said.safe and said.mode in ("timeout", "deadlock")
    odd = fitted.judge(LoggedFailure("sokoban", 6, ["sideways"], [{}], 0, ""))
    assert odd.pivot.tolist() == [1.0], "an action and a length that were never seen"
