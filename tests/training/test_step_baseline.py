"""Baselines that answer every question of the benchmark: they find what a log says, no more, and never read truth."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from pivot.datasets.predictors import LoggedFailure
from pivot.solvers.credit import TurnCredit
from pivot.tests.training.test_baselines import logs
from pivot.training.benchmark.items import Item, Question
from pivot.training.benchmark.log_baselines import answer_of, measure_baselines
from pivot.training.benchmark.make import Made
from pivot.training.benchmark.step_baseline import STEPS, Fitting, StepBaseline
from pivot.training.evaluation.level_posterior import Judgement

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
def test_episodes_of_two_steps_have_no_neighbours_and_are_read() -> None:
    """Columns of a neighbour two steps away have no value at all, as in svg, or so few that no leaf has them."""

    def cut(each: LoggedFailure, length: int) -> LoggedFailure:
        return replace(each, actions=each.actions[:length], infos=each.infos[:length], pivot_step=each.pivot_step % 2)

    for longer in (0, 3):
        failures = [cut(each, 6 if place < longer else 2) for place, each in enumerate(logs(200, 4))]
        fitted = StepBaseline([Fitting(each, True, turns_of(each)[: len(each.actions)]) for each in failures])
        judged = [fitted.judge(each) for each in failures[longer:]]
        assert all(said.reach is not None and said.need is not None for said in judged)
        assert (
            np.mean(
                [said.pivot.argmax() == each.pivot_step for said, each in zip(judged, failures[longer:], strict=True)]
            )
            > 0.6
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
    variant = replace(test[0], pivot_step=(test[0].pivot_step + 1) % 5, failure_mode="budget")
    assert (fitted.judge(variant).pivot == fitted.judge(test[0]).pivot).all()


@pytest.mark.train
def test_an_environment_whose_solver_measures_nothing_has_a_pivot_and_a_mode() -> None:
    fitted = StepBaseline([replace(each, turns=()) for each in fitting(logs(100, 8))])
    said = fitted.judge(logs(1, 9)[0])
    assert said.reach is None and said.need is None and not said.safe and said.mode in ("timeout", "deadlock")
    odd = fitted.judge(LoggedFailure("sokoban", 6, ["sideways"], [{}], 0, ""))
    assert odd.pivot.tolist() == [1.0], "an action and a length that were never seen"


# Answers to the benchmark


def item(question: Question, *choices: str, step: int | None = None) -> Item:
    """An item about an episode of three steps."""
    actions = ("up", "left", "up")
    return Item("a", question, "sokoban", "random", "full", 3, actions, "", step, choices, "?", ("p",), ("0",))


def test_a_judgement_answers_every_question() -> None:
    safe = {"up": np.array([0.1, 0.6, 0.2]), "left": np.array([0.9, 0.9, 0.9]), "down": np.array([0.5, 0.3, 0.7])}
    said = Judgement(np.array([0.2, 0.5, 0.3]), "deadlock", need=np.array([1.0, 4.0, 4.0]), safe=safe)
    locate, choose = item("locate", "timeout", "deadlock"), item("safe", "left", "down", "up", step=1)
    assert answer_of(locate, said, is_lost=True).reply == '{"pivot_step": 1, "failure_mode": "deadlock"}'
    assert answer_of(locate, said, is_lost=False).reply == '{"pivot_step": null, "failure_mode": null}'
    assert answer_of(choose, said, is_lost=True).reply == '{"safe_action": "up"}', "never the one that was fatal"
    row = answer_of(item("credit"), said, is_lost=True)
    assert row.credit == (-0.2, -0.5, -0.3) and row.value == (-1.0, -4.0, -4.0)
    assert row.reach == pytest.approx((0.8, 0.3, 0.0))
    assert answer_of(item("credit"), said, is_lost=False).reach == (1.0, 1.0, 1.0)
    own = replace(said, reach=np.array([1.0, 0.5, 0.5]), need=None)
    row = answer_of(item("credit"), own, is_lost=True)
    assert row.reach == row.value == (1.0, 0.5, 0.5), "its own chances, which are also the worth of the states"


@pytest.mark.train
def test_it_stands_in_the_table_with_every_figure(made_benchmark: Made) -> None:
    stages: list[tuple[str, int]] = []
    advances: list[int] = []

    def begin(stage: str, count: int) -> Callable[[], None]:
        stages.append((stage, count))
        return lambda: advances.append(1)

    results = {each["name"]: each for each in measure_baselines(made_benchmark, begin=begin)}
    assert stages == [("baselines", len(advances))] and len(advances) == 4
    cells = {(cell["task"], cell["env"], cell["log"]): cell for cell in results[STEPS]["cells"]}
    guesses = {(cell["task"], cell["env"], cell["log"]): cell for cell in results["uniform"]["cells"]}
    assert cells.keys() == {place for place in guesses if place[1] == "sokoban"}, "too few failures of the other game"
    assert all(cell["read"]["strict"]["value"] == 1 for cell in cells.values())
    for place, cell in cells.items():
        if place[0] == "credit":
            mine, other = (each["figures"]["strict"] for each in (cell, guesses[place]))
            assert mine["calibration"]["value"] > other["calibration"]["value"] and mine["need"] is not None
