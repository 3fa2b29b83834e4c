"""Turns of several actions: labels against a search over whole turns that only plays the environment."""

import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from pivot.core import plugins
from pivot.environments.grid import GridEnv
from pivot.solvers.base import Case, Verdict, prove
from pivot.tests.solvers.turn_search import NAMES, Turns, play_turns

SETTINGS: dict[str, dict[str, Any]] = {
    "sokoban": {"actions_per_turn": 3, "horizon": 5, "min_solution": 4, "max_solution": 13},
    "frozenlake": {"actions_per_turn": 5, "horizon": 5, "size": 6},
}
SHORT: dict[str, dict[str, Any]] = SETTINGS | {"frozenlake": SETTINGS["frozenlake"] | {"actions_per_turn": 4}}
"""A quarter of the turns to search."""


def _check(name: str, settings: dict[str, Any], levels: int, rollouts: int) -> int:
    """Compare every label of random failures with the search, and prove it; return how many there were."""
    env = plugins.load("environments", name).from_settings(settings)
    env.draw_frames = False
    horizon, most, rng = env.config.horizon, env.config.actions_per_turn, random.Random(7)
    solver, checked, counts = plugins.load("solvers", name)(), 0, [0, 0]
    for seed in range(levels):
        level = env.make_task(env.config, seed).initial_state
        played = [each[:2] for _ in range(rollouts) if not (each := play_turns(env, level, rng))[2]]
        cases = [Case(level, turns, horizon, actions_per_turn=most) for turns, _ in played]
        needs = Turns(env, level).needs
        for case, (_, states), verdict in zip(cases, played, solver.certify(cases), strict=True):
            assert isinstance(verdict, Verdict), verdict
            lost = [t for t, state in enumerate(states) if needs.get(state, 1000) > horizon - t]
            pivot = max(lost[0] - 1, 0) if lost else len(case.actions) - 1
            before, after = needs.get(states[pivot]), needs.get(states[pivot + 1])
            facts = verdict.certificate
            assert (verdict.pivot_step, facts.before, facts.after) == (pivot, before, after), case
            assert verdict.failure_mode == ("deadlock" if after is None else "timeout")
            assert (verdict.fallback, verdict.infeasible_at_start) == (not lost, lost[:1] == [0])
            fatal = None if not lost or lost[0] == 0 else _fatal_action(env, needs, states[pivot], case, pivot)
            assert verdict.pivot_action == fatal, case
            counts[fatal is not None] += 1
            left = horizon - pivot
            assert (facts.unit, facts.budget_before, facts.budget_after) == ("turns", left, left - 1)
            safe = [turn for turn in NAMES if _need_after(env, needs, states[pivot], [turn]) < horizon - pivot]
            first = [turn for turn in (verdict.witness or ())[:1] if "|" in turn]
            assert list(verdict.feasible_actions) == ([] if lost[:1] == [0] else safe + first)
            if verdict.witness is not None:
                assert len(verdict.witness) == before
                assert _need_after(env, needs, states[pivot], verdict.witness) == 0
            proof = prove(name, case, verdict)
            assert proof.holds, (case, verdict, proof)
            checked += 1
    assert min(counts) > checked // 20  # turns that an action loses, and turns that their missing actions lose
    return checked


def _fatal_action(env: GridEnv, needs: dict[str, int], state: str, case: Case, step: int) -> int | None:
    """Try every way to play on after each action of a turn; return the first action after which none is in time."""
    turn = case.actions[step].split("|")
    for index in range(0 if turn == ["invalid"] else len(turn)):
        rest = range(case.actions_per_turn - index)
        tails = (tail for length in rest for tail in product(NAMES, repeat=length))
        ways = ("|".join((*turn[: index + 1], *tail)) for tail in tails)
        if all(_need_after(env, needs, state, [way]) > case.horizon - step - 1 for way in ways):
            return index
    return None


def _need_after(env: GridEnv, needs: dict[str, int], state: str, turns: Any) -> int:
    env.restore(b"0\n" + state.encode())
    for turn in turns:
        env.step(env.encode_action(turn))
    return needs.get(env.state_text(), 1000)


@pytest.mark.parametrize("name", SETTINGS)
def test_labels_are_those_of_a_search_over_whole_turns(name: str) -> None:
    assert _check(name, SHORT[name], 2, 12) > 12


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_two_thousand_labels_are_those_of_a_search_over_whole_turns(name: str) -> None:
    assert _check(name, SETTINGS[name], 160, 18) >= 2000


def test_the_prover_finds_planted_defects() -> None:
    level = "########\n#@     #\n# $  . #\n#      #\n########"
    # The first turn costs nothing; the third is the first after which two turns of three are too few.
    case = Case(level, ("invalid", "up|up", "down|down|left", "left", "up"), 5, actions_per_turn=3)
    verdict = plugins.load("solvers", "sokoban")().certify([case])[0]
    assert isinstance(verdict, Verdict) and prove("sokoban", case, verdict).holds
    facts, witness = verdict.certificate, verdict.witness or ()
    forgeries = (
        replace(verdict, pivot_step=verdict.pivot_step - 1),
        replace(verdict, certificate=replace(facts, before=(facts.before or 0) + 1)),
        replace(verdict, certificate=replace(facts, after=(facts.after or 0) * 3)),
        replace(verdict, certificate=replace(facts, unit="moves")),
        replace(verdict, witness=tuple(action for turn in witness for action in turn.split("|"))),
        replace(verdict, witness=()),
        replace(verdict, witness=("|".join(witness),)),
        replace(verdict, feasible_actions=(*verdict.feasible_actions, "up|up")),
        replace(verdict, feasible_actions=verdict.feasible_actions[:-1]),
        replace(verdict, pivot_action=0),  # the turn has one action, so an index within it is wrong
    )
    for forgery in forgeries:
        assert prove("sokoban", case, forgery).problems, forgery
    assert prove("sokoban", replace(case, actions=("right|right|right|down", *case.actions[1:])), verdict).problems


@pytest.mark.parametrize(
    ("level", "turns", "pivot", "action"),
    [
        ("SFH\nFFF\nFFG", ("right|left|right|right",), 0, 3),  # into the hole
        ("SFH\nFFF\nFFG", ("down", "left|left|left"), 1, 2),  # of five moves, two may be wasted
        ("SFH\nFFF\nFFG", ("invalid", "down"), 1, None),  # this move loses nothing
        ("SFH\nFFF\nFFG", ("down", "invalid"), 1, None),
        ("SFFFFFFFFFFG", ("right", "right"), 0, None),  # the start was too far
    ],
)
def test_the_action_that_loses_the_goal_is_named(level: str, turns: Any, pivot: int, action: int | None) -> None:
    case = Case(level, turns, 2, actions_per_turn=5)
    verdict = plugins.load("solvers", "frozenlake")().certify([case])[0]
    assert isinstance(verdict, Verdict) and (verdict.pivot_step, verdict.pivot_action) == (pivot, action)
    assert prove("frozenlake", case, verdict).holds
    for wrong_action in {None, 0, 1, 2, 3, 4} - {action}:
        assert prove("frozenlake", case, replace(verdict, pivot_action=wrong_action)).problems


@pytest.mark.parametrize(
    ("name", "state", "paid"), [("frozenlake", "SFG\nFFF\nFFH", 9.9), ("sokoban", "#######\n#@ $. #\n#######", 10.9)]
)
def test_a_turn_ends_at_success_and_keeps_its_name(name: str, state: str, paid: float) -> None:
    env = plugins.load("environments", name).from_settings(SETTINGS[name])
    env.reset(options={"state": state})
    action = env.parse_action("right, right,right")
    assert action is not None and action.name == "right|right|right"
    _, reward, ended, _, info = env.step(env.encode_action(action.name))
    assert (ended, info["success"], info["remaining_turns"]) == (True, True, 4)
    assert reward == pytest.approx(paid)
    for text in ("", ",", "jump", "up down", "jump, leap", "up," * 5 + "up", "up|down"):
        assert env.parse_action(text) is None


def test_an_unusable_word_costs_only_its_own_place() -> None:
    env = plugins.load("environments", "frozenlake").from_settings(SETTINGS["frozenlake"] | {"actions_per_turn": 3})
    turns = {"up, jump": "up", "jump, up": "up", "up,": "up", "left, jump, up": "left|up", "left, jump, up, up": None}
    for text, name in turns.items():
        action = env.parse_action(text)
        assert (action and action.name) == name, text
    assert plugins.load("environments", "frozenlake").from_settings({}).parse_action("up, jump") is None


def test_every_turn_has_its_own_index() -> None:
    env = plugins.load("environments", "sokoban").from_settings({"actions_per_turn": 3})
    env.reset(seed=0)
    turns = [(a,) for a in NAMES] + [(a, b) for a in NAMES for b in NAMES]
    turns += [(a, b, c) for a in NAMES for b in NAMES for c in NAMES]
    names = ["|".join(turn) for turn in turns]
    names.insert(4, "invalid")
    assert [env.encode_action(name) for name in names] == list(range(env.last_index + 1))
    assert env.action_space.n == 85
