"""Baselines that read the log alone: they find what the log determines, no more, and never read the truth."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pivot.datasets.export.predictors import LoggedFailure
from pivot.datasets.store.config import environment, solver_type
from pivot.solvers.credit import TurnCredit
from pivot.tests.evaluation.conftest import Made
from pivot.training.evaluation import baselines, level_posterior
from pivot.training.evaluation.baselines import answer_of, fit_baselines, fit_gate, measure_baselines
from pivot.training.evaluation.boosted_trees import BoostedTrees, Fitting, Judgement, LogFeatures
from pivot.training.evaluation.config import RecordChoice
from pivot.training.evaluation.dataset import chosen_rows, fitting_of
from pivot.training.evaluation.items import Item, Question
from pivot.training.evaluation.level_posterior import (
    ACTIONS,
    FAR,
    LevelPosterior,
    _vote,
    fit_habits,
    level_weights,
    objection,
    read_worlds,
    walk,
)
from pivot.training.records import open_records


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


def test_features_hold_nothing_of_the_label() -> None:
    features = LogFeatures(logs(30, 1))
    for each in logs(30, 1):
        other = replace(each, pivot_step=5, failure_mode="format")
        assert np.array_equal(features.of(each), features.of(other), equal_nan=True)
        assert np.array_equal(features.flat(each), features.flat(other), equal_nan=True)


OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def turns_of(each: LoggedFailure) -> list[TurnCredit]:
    """Turns that a log decides: the goal is lost at the pivot; the opposite of an action is safe, at first all are."""
    made: list[TurnCredit] = []
    for t, action in enumerate(each.actions):
        within = t < each.pivot_step
        needed, safe = 6 - t if within else None, (OPPOSITE[action],) if t else (*OPPOSITE,)
        made.append(TurnCredit(7 - t, needed, 0 if within else -1, within, None, t == each.pivot_step, safe))
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
    """Catch a baseline that leaves out a task, or fits no better than the most frequent answer."""
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


# Guessed levels: tables agree with the solvers, and logs are followed as in the environments


def levels(env: str, count: int) -> list[str]:
    """Levels of the generator with its defaults."""
    kind: Any = environment(env)
    return [kind.find_level(kind.config_type(), seed)[1] for seed in range(count)]


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_every_reachable_state_moves_and_is_as_far_as_the_solver_says(env: str) -> None:
    texts = levels(env, 12)
    worlds = read_worlds(env, texts)
    assert worlds is not None
    kind: Any = environment(env)
    for number, text in enumerate(texts):
        game, solver = kind(kind.config_type(horizon=1000)), cast(Any, solver_type(env)())
        distances = solver.distance_map(text)
        seen, waiting = {text: int(worlds.start[number])}, [text]
        while waiting:
            state = waiting.pop()
            mine = int(worlds.distance[number, seen[state]])
            assert (None if mine == FAR else mine) == distances.distance(state)
            if mine == 0 or worlds.over[number, seen[state]]:
                continue
            for index, action in enumerate(ACTIONS):
                game.reset(options={"state": state})
                _, _, ended, _, info = game.step(index)
                after = game.state_text()
                place = int(worlds.after[number, seen[state], index])
                assert (place != seen[state]) == info["moved"], action
                assert ended == (worlds.over[number, place] or worlds.distance[number, place] == 0)
                if after not in seen:
                    waiting.append(after)
                assert seen.setdefault(after, place) == place


@pytest.fixture(scope="module")
def failures(small_store: Path) -> dict[str, list[LoggedFailure]]:
    """Labelled failures of both puzzles, with their levels."""
    rows, others = chosen_rows(open_records(str(small_store)), RecordChoice())
    rows = [fitting_of(row).log for row in (*others, *rows)]
    return {env: [each for each in rows if each.env == env and each.initial_state] for env in ("sokoban", "frozenlake")}


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_the_true_level_fits_a_log_and_gives_the_label(failures: dict[str, list[LoggedFailure]], env: str) -> None:
    assert failures[env]
    for each in failures[env]:
        worlds = read_worlds(env, [each.initial_state])
        assert worlds is not None
        walked = walk(worlds, each)
        assert walked.rows.tolist() == [0] and walked.pivot.tolist() == [each.pivot_step]
        assert bool(walked.dead[0]) == (each.failure_mode == "deadlock")
        moved = next(
            (t for t in range(len(each.actions)) if each.actions[t] in ACTIONS and each.moved[t] is not None), None
        )
        if moved is not None:  # a planted defect: the log says that a move had the other effect
            infos = [dict(info) for info in each.infos]
            infos[moved]["moved"] = not infos[moved]["moved"]
            assert not len(walk(worlds, replace(each, infos=infos)).rows)


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_every_step_is_judged_as_the_solver_does_where_one_level_is_left(
    failures: dict[str, list[LoggedFailure]], env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = environment(env)
    for each in failures[env][:25]:
        monkeypatch.setattr(
            level_posterior, "generated_worlds", lambda *_, each=each: read_worlds(env, [each.initial_state])
        )
        said = LevelPosterior([each]).judge(each)
        assert said.pivot[each.pivot_step] == pytest.approx(1) and said.mode == each.failure_mode
        distances = cast(Any, solver_type(env)()).distance_map(each.initial_state)
        game = kind(kind.config_type(horizon=1000))

        def need(state: str, action: int | None, game: Any = game, distances: Any = distances) -> int | None:
            game.reset(options={"state": state})
            if action is not None:
                game.step(action)
            return distances.distance(game.state_text())

        state, needs = each.initial_state, list[int]()
        for t, action in enumerate(each.actions):
            reached = [need(state, index) for index in range(len(ACTIONS))]
            safe = {one for one, k in zip(ACTIONS, reached, strict=True) if k is not None and k <= each.horizon - 1 - t}
            assert not 0 < len(safe) < len(ACTIONS) or set(said.safe[t]) == safe
            if action in ACTIONS:
                need(state, ACTIONS.index(action))
                state = game.state_text()
            distance = need(state, None)
            needs.append(each.horizon + 1 if distance is None else min(distance, each.horizon + 1))
        assert said.need is not None and said.need.tolist() == pytest.approx(needs)


def test_levels_vote_for_the_mode_of_the_step_that_wins() -> None:
    walked: Any = SimpleNamespace(pivot=np.array([0, 0, 1, 2]), dead=np.array([True, True, False, False]))
    assert _vote(walked, np.ones(4), 3)[1] == "deadlock"


def test_habits_weigh_the_levels(failures: dict[str, list[LoggedFailure]]) -> None:
    train = failures["frozenlake"]
    mine = read_worlds("frozenlake", [each.initial_state for each in train])
    assert mine is not None
    habits = fit_habits(mine, train)
    assert habits.weights.sum() == pytest.approx(1)
    worlds = read_worlds("frozenlake", levels("frozenlake", 400))
    assert worlds is not None
    walked = walk(worlds, train[0], habits)
    weights = level_weights(habits, walked)
    assert len(weights) == len(walked.rows) > 0 and weights.max() <= len(habits.weights) and weights.std() > 0
    assert np.ptp(level_weights(None, walk(worlds, train[0]))) == 0


def test_the_label_and_the_level_of_a_failure_are_not_read(failures: dict[str, list[LoggedFailure]]) -> None:
    train = failures["frozenlake"]
    judge = LevelPosterior(train).judge
    for each in train[:20]:
        blind = judge(replace(each, pivot_step=0, failure_mode="", initial_state="", env_config=""))
        assert (judge(each).pivot == blind.pivot).all() and judge(each).mode == blind.mode


def test_unfittable_failures_are_refused_with_the_reason(failures: dict[str, list[LoggedFailure]]) -> None:
    (train, *_), lake = failures["sokoban"], failures["frozenlake"]
    assert objection(lake) is None
    large = train.initial_state.replace("#", "##", 1)
    for changed, reason in (
        (replace(train, env="svg"), "cannot be searched completely"),
        (replace(train, initial_state=""), "do not say their levels"),
        (replace(train, actions=["up|down"]), "several actions"),
        (replace(train, initial_state=large), "several sizes"),
        (replace(train, initial_state=train.initial_state.replace(" ", "$", 1)), "several boxes"),
    ):
        assert reason in (objection([changed]) or "")
    assert "several settings" in (objection([lake[0], replace(lake[0], env_config="{}")]) or "")
