"""Guessed levels: tables agree with the solvers, logs are followed as in the environments, and no truth is read."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pivot.datasets.export.predictors import LoggedFailure
from pivot.datasets.store.config import environment, solver_type
from pivot.training.evaluation import level_posterior
from pivot.training.evaluation.config import RecordChoice
from pivot.training.evaluation.dataset import chosen_rows, fitting_of
from pivot.training.evaluation.level_posterior import (
    ACTIONS,
    FAR,
    LevelPosterior,
    fit_habits,
    level_weights,
    objection,
    read_worlds,
    walk,
)
from pivot.training.records import open_records


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
