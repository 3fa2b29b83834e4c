"""Baselines that read the log alone: they find what the log determines, no more, and never read the truth."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pivot.datasets.export.predictors import LoggedFailure
from pivot.solvers.credit import TurnCredit
from pivot.tests.training.conftest import Made
from pivot.training.evaluation import baselines, level_posterior
from pivot.training.evaluation.baselines import answer_of, fit_baselines, fit_gate, measure_baselines
from pivot.training.evaluation.boosted_trees import BoostedTrees, Fitting, Judgement
from pivot.training.evaluation.items import Item, Question


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
    """Return failures with the truths that the baseline is fitted on."""
    return [Fitting(each, True, turns_of(each)) for each in failures]


@pytest.mark.train
def test_pivot_mode_reach_need_and_safe_actions_are_read_from_the_log() -> None:
    test = logs(60, 5)
    fitted = BoostedTrees(fitting(logs(300, 4)))
    judged = [fitted.judge(each) for each in test]
    pairs = list(zip(judged, test, strict=True))
    variant = fitted.judge(replace(test[0], pivot_step=(test[0].pivot_step + 1) % 5, failure_mode="budget"))
    assert (variant.pivot == judged[0].pivot).all(), "its truth is not read"
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
    safe = [said.safe[t] == (OPPOSITE[action],) for said, each in pairs for t, action in enumerate(each.actions)]
    assert np.mean(safe) > 0.9


@pytest.mark.train
def test_episodes_of_two_steps_have_no_neighbours_and_are_read() -> None:
    """Columns of a neighbour two steps away have no value at all, as in svg, or so few that no leaf has them."""

    def cut(each: LoggedFailure, length: int) -> LoggedFailure:
        return replace(each, actions=each.actions[:length], infos=each.infos[:length], pivot_step=each.pivot_step % 2)

    for longer in (0, 3):
        failures = [cut(each, 6 if place < longer else 2) for place, each in enumerate(logs(100, 4))]
        fitted = BoostedTrees([Fitting(each, True, turns_of(each)[: len(each.actions)]) for each in failures])
        pairs = [(fitted.judge(each), each.pivot_step) for each in failures[longer:]]
        assert all(said.reach is not None and said.need is not None for said, _ in pairs)
        assert np.mean([said.pivot.argmax() == pivot for said, pivot in pairs]) > 0.6


@pytest.mark.train
def test_an_environment_whose_solver_measures_nothing_has_a_pivot_and_a_mode() -> None:
    fitted = BoostedTrees([replace(each, turns=()) for each in fitting(logs(100, 8))])
    said = fitted.judge(logs(1, 9)[0])
    assert said.reach is None and said.need is None and not said.safe and said.mode in ("timeout", "deadlock")
    odd = fitted.judge(LoggedFailure("sokoban", 6, ["sideways"], [{}], 0, ""))
    assert odd.pivot.tolist() == [1.0], "an action and a length that were never seen"


# Answers to the benchmark


def item(question: Question, *choices: str, step: int | None = None) -> Item:
    """An item about an episode of three steps."""
    actions = ("up", "left", "up")
    return Item("a", question, "sokoban", "full", 3, actions, "", step, choices, "?", ("p",), ("0",))


def test_a_judgement_answers_every_question() -> None:
    safe = [("up",), ("left", "up", "jump"), ()]
    said = Judgement(np.array([0.2, 0.5, 0.3]), "deadlock", need=np.array([1.0, 4.0, 4.0]), safe=safe)
    locate, choose = item("locate", "timeout", "deadlock"), item("safe", "left", "down", "up", step=1)
    assert answer_of(locate, said, is_lost=True).reply == '{"pivot_step": 1, "failure_mode": "deadlock"}'
    assert answer_of(locate, said, is_lost=False).reply == '{"pivot_step": null, "failure_mode": null}'
    assert answer_of(choose, said, is_lost=True).reply == '{"safe_actions": ["left", "up"]}', "of the offered ones"
    twins = [answer_of(item("twin", "deadlock"), said, is_lost=False, second=second).reply for second in (False, True)]
    assert [json.loads(each or "")["pivot_step"] for each in twins] == [1, 2], "a step to each"
    row = answer_of(item("credit"), said, is_lost=True)
    assert row.credit == (-0.2, -0.5, -0.3) and row.value == (-1.0, -4.0, -4.0)
    assert row.reach == pytest.approx((0.8, 0.3, 0.0))
    assert answer_of(item("credit"), said, is_lost=False).reach == (1.0, 1.0, 1.0)
    own = replace(said, reach=np.array([1.0, 0.5, 0.5]), need=None)
    row = answer_of(item("credit"), own, is_lost=True)
    assert row.reach == row.value == (1.0, 0.5, 0.5), "its own chances, which are also the worth of the states"


def test_the_most_frequent_answer_is_the_majority() -> None:
    train = logs(60, 2)
    judges, _ = fit_baselines(fitting(train), learned=False)
    steps, modes = (Counter(getattr(each, name) for each in train) for name in ("pivot_step", "failure_mode"))
    said = judges["majority"](logs(1, 3)[0])
    assert steps[int(said.pivot.argmax())] == max(steps.values()) and modes[said.mode] == max(modes.values())
    assert list(said.safe) == [(OPPOSITE[action],) for action in logs(1, 3)[0].actions]


def test_a_baseline_that_cannot_be_fitted_says_why() -> None:
    judges, reasons = fit_baselines(fitting(logs(14, 11)))
    assert list(judges) == ["majority"]
    assert reasons["boosted trees"].startswith("found 14 failures to fit on, expected at least 45")
    assert "do not say their levels" in reasons["level posterior"]


def test_a_gate_of_lengths_follows_most_episodes() -> None:
    long, short = logs(3, 1), [replace(each, actions=each.actions[:2], infos=each.infos[:2]) for each in logs(3, 2)]
    gate = fit_gate([*(Fitting(each) for each in long), *(Fitting(each, lost=False) for each in short)], learned=False)
    assert gate(long[0]) and not gate(short[0])
    assert gate(replace(long[0], actions=["up"], infos=[{}])), "a new length"


RARE = [replace(each, failure_mode="budget") for each in logs(1, 14)]
LAST = [replace(each, pivot_step=5) for each in logs(2, 15)]


@pytest.mark.train
@pytest.mark.parametrize(("train", "least"), [(logs(200, 13) + RARE, 0.8), (logs(43, 13) + LAST, 0.15)])
def test_rare_classes_stop_no_fit(train: list[LoggedFailure], least: float) -> None:
    """Include a mode of a single failure, and more pivot steps than a tenth of the failures."""
    test, fitted = logs(150, 16), BoostedTrees([Fitting(each) for each in train])
    assert np.mean([fitted.judge(each).pivot.argmax() == each.pivot_step for each in test]) > least


@pytest.mark.train
def test_the_table_has_every_figure_of_the_trees(made_benchmark: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measure_baselines(made_benchmark.benchmark, made_benchmark.episodes)
    results = {each["name"]: each for each in measured}
    assert list(results) == ["majority", "boosted trees", "level posterior"]
    trees, usual = (
        {(cell["task"], cell["env"], cell["log"]): cell for cell in results[name]["cells"]}
        for name in ("boosted trees", "majority")
    )
    assert trees.keys() == usual.keys() and results["boosted trees"]["not_fitted"] == {}
    assert all(cell["read"]["strict"]["value"] == 1 for cell in trees.values())
    for place, cell in trees.items():
        if place[0] == "credit":
            mine, other = (each["figures"]["strict"] for each in (cell, usual[place]))
            assert mine["Brier"]["value"] > other["Brier"]["value"] and mine["need"] is not None
    monkeypatch.setattr(baselines, "FEWEST", 10**6)
    monkeypatch.setattr(level_posterior, "LEVELS", 4)
    fewer = {each["name"]: each for each in measure_baselines(made_benchmark.benchmark, made_benchmark.episodes)}
    assert {*fewer["boosted trees"]["not_fitted"]} == {"sokoban", "frozenlake"} and not fewer["boosted trees"]["cells"]
