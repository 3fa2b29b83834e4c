"""The closure search against the solvers written for each game, and its prover."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import pivot
import pytest
from pivot.environments.frozenlake.environment import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.world import ACTIONS as ROOM_ACTIONS
from pivot.environments.sokoban.environment import SokobanConfig, SokobanEnv
from pivot.solvers.base import Case, Unsolved, Verdict
from pivot.solvers.closure import Graph
from pivot.solvers.replay import Game, prove
from pivot.testing.prover import altered

MOVES = {"up": 0, "down": 1, "left": 2, "right": 3}
HORIZON = 9


def puzzle(env: gymnasium.Env[Any, Any], seed: int, **settings: Any) -> Graph:
    return pivot.explore(
        env, actions=MOVES, seed=seed, key=lambda each: each.unwrapped.state_text(), clock=("_turn",), **settings
    )


@pytest.mark.parametrize("levels", [2, pytest.param(450, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sokoban", lambda: SokobanEnv(SokobanConfig(horizon=HORIZON), render_mode=None)),
        ("frozenlake", lambda: FrozenLakeEnv(FrozenLakeConfig(horizon=HORIZON), render_mode=None)),
    ],
)
def test_labels_are_those_of_the_solver_of_the_game(name: str, make: Callable[[], Any], levels: int) -> None:
    """Random play on generated levels: pivot, mode, needs, witness and safe actions are equal."""
    choose, labelled = random.Random(1), 0
    for seed in range(levels):
        env = make()
        graph = puzzle(env, seed, checks=8)
        level = env.make_task(env.config, seed).initial_state
        assert graph.limit is None and graph.how == "snapshot"
        for _ in range(25):
            actions = choose.choices([*MOVES, "invalid"], k=HORIZON)
            while isinstance(answer := graph.certify(actions, HORIZON), Unsolved) and answer.reason == "bad_episode":
                actions = actions[:-1]  # the episode ended earlier
            if isinstance(answer, Unsolved):
                assert answer.reason == "not_a_failure"
                continue
            expected = pivot.certify(name, level, actions, HORIZON)
            facts = ("kind", "budget_before", "budget_after", "before", "after", "reachable_after")
            certificate, reference = answer.certificate, expected.certificate
            assert [getattr(certificate, each) for each in facts] == [getattr(reference, each) for each in facts]
            for each in ("pivot_step", "failure_mode", "fallback", "infeasible_at_start", "witness"):
                assert getattr(answer, each) == getattr(expected, each), each
            assert answer.feasible_actions == expected.feasible_actions
            labelled += 1
    assert labelled > 12 * levels


@pytest.mark.parametrize("levels", [1, pytest.param(60, marks=pytest.mark.long)])
def test_pivots_in_rooms_are_those_of_the_exact_reference(levels: int) -> None:
    """Navigation is labelled by a bound, and its exact reference is known; the search finds the same reference."""
    choose, labelled = random.Random(2), 0
    for seed in range(levels):
        env = NavigationEnv(NavigationConfig(horizon=1000), render_mode=None)
        env.draw_frames = False
        graph = pivot.explore(
            env,
            actions={name: place for place, name in enumerate(ROOM_ACTIONS)},
            seed=seed,
            key=lambda each: each.unwrapped.changing_state(),
            clock=(),
            success=lambda _env, _reward, terminated, _info: terminated,
            checks=8,
            fresh=False,
        )
        assert graph.limit is None
        level = NavigationEnv.make_task(env.config, seed).initial_state
        for few in (1, 2, 3, 8):
            actions = choose.choices(choose.sample(ROOM_ACTIONS, few), k=25)
            answer = graph.certify(actions, 25)
            if isinstance(answer, Unsolved):
                assert answer.reason in ("not_a_failure", "bad_episode")  # the walk succeeds
                continue
            label = pivot.certify("navigation", level, actions, 25)
            certificate, states = label.certificate, graph.walk(actions)
            before, after = (graph.need(state) for state in states[label.pivot_step : label.pivot_step + 2])
            assert certificate.reference_kind == "exact" and answer.pivot_step == certificate.reference_pivot
            assert (before, after) == (certificate.reference_before, certificate.reference_after)
            assert label.pivot_step >= answer.pivot_step  # a bound notices a loss late, never early
            labelled += 1
    assert labelled >= 2 * levels


def lake(seed: int) -> tuple[Graph, Game]:
    """A searched small lake, and another instance of it for proofs."""
    env = FrozenLakeEnv(FrozenLakeConfig(horizon=HORIZON), render_mode=None)
    game = Game(
        FrozenLakeEnv(FrozenLakeConfig(horizon=HORIZON), render_mode=None),
        MOVES,
        key=lambda each: each.state_text(),
        won=lambda _env, _reward, _terminated, info: info["success"],
        seed=seed,
        clock=("_turn",),
    )
    return puzzle(env, seed, checks=8), game


def test_limits_leave_labels_out_and_change_none() -> None:
    """A limited search agrees with the whole one, except for needs and modes beyond the limit."""
    choose, kinds = random.Random(5), Counter[str]()
    for seed in range(3):
        graph, game = lake(seed)
        for states in range(2, len(graph.successors)):
            env = FrozenLakeEnv(FrozenLakeConfig(horizon=HORIZON), render_mode=None)
            limited = puzzle(env, seed, checks=1, max_states=states)
            assert limited.limit is not None
            for _ in range(12):
                actions = choose.choices(list(MOVES), k=HORIZON)
                while (whole := graph.certify(actions, HORIZON)) and getattr(whole, "reason", "") == "bad_episode":
                    actions = actions[:-1]
                label = limited.certify(actions, HORIZON)
                if isinstance(whole, Unsolved) or isinstance(label, Unsolved):
                    kinds[label.reason if isinstance(label, Unsolved) else label.failure_mode] += 1
                    assert isinstance(label, Unsolved)
                    continue
                kinds[label.failure_mode] += 1
                if label.failure_mode == "out_of_budget":
                    facts = replace(whole.certificate, after=None, reachable_after=None)
                    if whole.infeasible_at_start and label.certificate.before is None:
                        facts = replace(facts, before=None)
                    whole = replace(whole, failure_mode="out_of_budget", certificate=facts)
                assert label == whole and prove(game, actions, HORIZON, label).problems == ()
                for step in {0, 1, len(actions) - 1} - {label.pivot_step}:
                    assert prove(game, actions, HORIZON, replace(label, pivot_step=step)).problems
    assert {"out_of_budget", "solver_limit", "timeout", "deadlock"} <= kinds.keys(), kinds


def test_replay_proves_right_labels_and_refutes_every_altered_one() -> None:
    choose, proved = random.Random(2), 0
    for seed in range(4):
        graph, game = lake(seed)
        for _ in range(3):
            actions = choose.choices([*MOVES, "invalid"], k=HORIZON)
            while isinstance(answer := graph.certify(actions, HORIZON), Unsolved) and answer.reason == "bad_episode":
                actions = actions[:-1]
            if isinstance(answer, Unsolved):
                continue
            assert prove(game, actions, HORIZON, answer).problems == ()
            case = Case("", actions, HORIZON)
            for what, wrong in altered(answer, case, ("timeout", "deadlock"), tuple(MOVES)):
                assert prove(game, actions, HORIZON, wrong).problems, what
            proved += 1
    assert proved > 6


def test_replay_leaves_large_levels_undecided_and_refuses_successes() -> None:
    graph, game = lake(0)
    plan = graph.plan(0)
    assert plan
    wait = next(action for action in MOVES if graph.walk([action])[-1] == 0)  # against the edge of the lake
    label = graph.certify([wait] * HORIZON, HORIZON)
    assert isinstance(label, Verdict) and prove(game, [wait] * HORIZON, HORIZON, label).problems == ()
    early = graph.certify([wait], HORIZON)  # nothing is lost, so no limit can have hidden it
    assert isinstance(early, Verdict) and early.fallback
    facts = replace(early.certificate, after=None, reachable_after=None)
    assert prove(game, [wait], HORIZON, replace(early, failure_mode="out_of_budget", certificate=facts)).problems
    assert prove(game, plan, HORIZON, label).problems == ("the episode succeeds",)
    assert prove(game, ["jump"], HORIZON, label).problems
    game = replace(lake(0)[1], max_steps=20)
    assert "max_steps = 20" in (prove(game, [wait] * HORIZON, HORIZON, label).undecided or "")
    assert game.steps <= 20


def test_states_that_the_proof_does_not_reach_leave_it_undecided() -> None:
    graph, game = lake(0)
    wait = next(action for action in MOVES if graph.walk([action])[-1] == 0)
    label = graph.certify([wait] * HORIZON, HORIZON)
    assert isinstance(label, Verdict)
    game.search()
    game.key = lambda each: (each.state_text(), "left by the last episode")
    proof = prove(game, [wait] * HORIZON, HORIZON, label)
    assert proof.problems == () and "reset leaves attributes" in (proof.undecided or "")
