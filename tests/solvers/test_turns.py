"""Labels and credit of turns, against a search over whole turns that only plays the environment."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pivot
import pytest
from pivot.core import plugins
from pivot.core.errors import CertifyError
from pivot.environments.grid import GridEnv
from pivot.solvers.base import Case, Needs, Unsolved, Verdict, prove
from pivot.solvers.credit import RULES, TurnCredit
from pivot.tests.external.corridor.pivot_corridor.solver import CorridorSolver

NAMES = ("up", "down", "left", "right")
SETTINGS: dict[str, dict[str, Any]] = {
    "sokoban": {"actions_per_turn": 3, "horizon": 5, "min_solution": 4, "max_solution": 13},
    "frozenlake": {"actions_per_turn": 5, "horizon": 5, "size": 6},
}
SHORT: dict[str, dict[str, Any]] = SETTINGS | {"frozenlake": SETTINGS["frozenlake"] | {"actions_per_turn": 4}}
"""A quarter of the turns to search."""
LEVEL = "######\n#@ $.#\n#    #\n######"
FAILURE = {"initial_state": LEVEL, "actions": ["down", "right", "right", "up"], "horizon": 4}
SUCCESS = {"initial_state": LEVEL, "actions": ["right", "right"], "horizon": 4}
FLAT: dict[str, dict[str, Any]] = {
    "sokoban": {"horizon": 7, "min_solution": 3, "max_solution": 6},
    "frozenlake": {"horizon": 7, "size": 4},
}


class Turns:
    """Fewest turns to success from every state of a level, by a search over all turns."""

    def __init__(self, env: GridEnv, level: str) -> None:
        """Play every turn in every state that is reached from the level."""
        env.reset(options={"state": level})
        states, before = [level], {level: list[str]()}
        won: list[str] = []
        for state in states:  # grows
            successors: dict[str, bool] = {}
            for turn in range(env.last_index + 1):
                env.restore(b"0\n" + state.encode())
                *_, ended, _, info = env.step(turn)
                successors[env.state_text()] = ended
                if info["success"]:
                    won.append(env.state_text())
            for after, ended in successors.items():
                if after not in before:
                    before[after] = []
                    states += [] if ended else [after]
                before[after].append(state)
        self.needs = dict.fromkeys(won, 0)
        queue = list(self.needs)
        for state in queue:  # grows
            for earlier in before[state]:
                if earlier not in self.needs:
                    self.needs[earlier] = self.needs[state] + 1
                    queue.append(earlier)


def play_turns(env: GridEnv, level: str, rng: random.Random) -> tuple[list[str], list[str], bool]:
    """Play turns of random length; return the turns, the states before and after them, and whether it was a success."""
    env.reset(options={"state": level})
    turns, states = list[str](), [env.state_text()]
    while True:
        length = rng.randint(0, env.config.actions_per_turn)
        turns.append("|".join(rng.choices(NAMES, k=length)) or "invalid")
        *_, ended, spent, info = env.step(env.encode_action(turns[-1]))
        states.append(env.state_text())
        if ended or spent:
            return turns, states, bool(info["success"])


def _plays(name: str, settings: dict[str, Any], levels: int, rollouts: int) -> Iterator[tuple[GridEnv, str, Any, Any]]:
    """Yield environment, level, needs by state and random plays of each level."""
    env = plugins.load("environments", name).from_settings(settings)
    env.draw_frames = False
    rng = random.Random(7)
    for seed in range(levels):
        level = env.make_task(env.config, seed).initial_state
        yield env, level, Turns(env, level).needs, [play_turns(env, level, rng) for _ in range(rollouts)]


def _check(name: str, settings: dict[str, Any], levels: int, rollouts: int) -> int:
    """Compare every label of random failures with the search, and prove it; return how many there were."""
    solver, checked, counts = plugins.load("solvers", name)(), 0, [0, 0]
    for env, level, needs, plays in _plays(name, settings, levels, rollouts):
        horizon, most = env.config.horizon, env.config.actions_per_turn
        played = [(turns, states) for turns, states, success in plays if not success]
        cases = [Case(level, turns, horizon, actions_per_turn=most) for turns, _ in played]
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
    names = ["|".join(turn) for length in (1, 2, 3) for turn in product(NAMES, repeat=length)]
    names.insert(4, "invalid")
    assert [env.encode_action(name) for name in names] == list(range(env.last_index + 1))
    assert env.action_space.n == 85


def _credit(env: str, episode: dict[str, Any], **settings: Any) -> tuple[TurnCredit, ...]:
    (answer,) = pivot.credit(env, [episode], **settings)
    assert not isinstance(answer, Unsolved), answer
    return answer


def _check_credit(name: str, settings: dict[str, Any], levels: int, rollouts: int) -> int:
    """Compare every field of the credit of random episodes with the search; return the number of turns."""
    checked = 0
    for env, level, search, plays in _plays(name, settings, levels, rollouts):
        horizon, most = env.config.horizon, env.config.actions_per_turn
        facts = {"initial_state": level, "horizon": horizon, "actions_per_turn": most}
        credits_ = pivot.credit(name, [{**facts, "actions": turns} for turns, *_ in plays])
        for (turns, states, _), answer in zip(plays, credits_, strict=True):
            assert not isinstance(answer, Unsolved), answer
            needs = [need if (need := search.get(state, 99)) <= horizon else None for state in states]
            within = [need is not None and need <= horizon - t for t, need in enumerate(needs)]
            pivots = [t for t in range(len(turns)) if not within[t + 1] and (within[t] or (t == 0 and not within[0]))]
            assert [each.need_before for each in answer] == needs[:-1]
            assert [each.need_after for each in answer] == needs[1:]
            assert [each.within_reach for each in answer] == within[1:]
            assert [t for t, each in enumerate(answer) if each.is_pivot] == pivots[:1]
            for t, each in enumerate(answer):
                safe = [a for a in NAMES if _need_after(env, search, states[t], [a]) <= horizon - 1 - t]
                assert list(each.safe_actions[: len(safe)]) == safe
                for plan in each.safe_actions[len(safe) :]:
                    assert most > 1
                    assert within[t] and _need_after(env, search, states[t], [plan]) == search[states[t]] - 1
                checked += 1
    return checked


@pytest.mark.parametrize(("levels", "least"), [(12, 150), pytest.param(2000, 30_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FLAT)
def test_credit_equals_a_search_that_plays_the_environment(name: str, levels: int, least: int) -> None:
    assert _check_credit(name, FLAT[name], levels, rollouts=4) > least


@pytest.mark.parametrize("name", SHORT)
def test_credit_of_turns_of_several_actions(name: str) -> None:
    assert _check_credit(name, SHORT[name], levels=2, rollouts=8) > 15


def test_rules_are_functions_of_a_turn() -> None:
    scores = {rule: [each.score for each in _credit("sokoban", FAILURE, rule=rule)] for rule in RULES}
    assert scores == {"progress": [-1, 1, -1, 0], "slack": [0, 0, -1, -1], "pivot": [0, 0, -1, 0]}
    own = _credit("sokoban", FAILURE, rule=lambda turn: len(turn.safe_actions))
    assert [each.score for each in own] == [4, 2, 1, 0]


def test_progress_adds_up_to_what_a_success_needed() -> None:
    answer = _credit("sokoban", SUCCESS)
    assert sum(each.score for each in answer) == 2 and [each.is_pivot for each in answer] == [False, False]
    assert answer[-1].need_after == 0
    level = {"initial_state": "######\n#@$. #\n######", "horizon": 4, "actions_per_turn": 2}
    (only,) = _credit("sokoban", level | {"actions": ["right|right"]})
    assert only.need_after == 0, "what follows the winning push is not played"


def test_progress_of_a_lost_level_is_minus_one_once() -> None:
    answer = _credit("frozenlake", {"initial_state": "SF\nHG", "actions": ["down"], "horizon": 5})
    assert answer == (TurnCredit(2, None, None, False, None, True, ("up", "left", "right"), -1.0),)


def test_a_level_out_of_reach_from_the_start_has_its_pivot_at_turn_0() -> None:
    answer = _credit("sokoban", FAILURE | {"horizon": 1, "actions": ["right"]})
    assert [each.is_pivot for each in answer] == [True]


def test_credit_of_bounds_has_no_safe_actions_without_a_room() -> None:
    episode = {"distances": [3.0, 2.6, 2.6], "actions": ["moveahead", "lookup"], "horizon": 3}
    answer = _credit("navigation", episode)
    assert [(each.need_before, each.need_after, each.safe_actions) for each in answer] == [(3, 3, ()), (3, 3, ())]
    assert _credit("navigation", episode | {"horizon": 2})[0].need_before is None, "more than the horizon"


@pytest.mark.parametrize(
    ("episode", "detail"),
    [
        ({"actions": ["right"] * 3}, "follow the turn that solved the level"),
        ({"actions": ["right"] * 5}, "more than its horizon"),
        ({"initial_state": "#####\n#@ .#\n#####"}, "box"),
        ({"actions": ["fly"]}, "unknown action 'fly'"),
    ],
)
def test_an_invalid_episode_does_not_spoil_its_neighbours(episode: dict[str, Any], detail: str) -> None:
    first, broken, last = pivot.credit("sokoban", [SUCCESS, SUCCESS | episode, SUCCESS])
    assert isinstance(broken, Unsolved) and detail in broken.detail
    assert first == last == pivot.credit("sokoban", [SUCCESS])[0]


def test_actions_after_the_end_in_frozenlake_are_refused() -> None:
    for level, word in (("SG", "goal"), ("SHG", "hole")):
        episode = {"initial_state": level, "actions": ["right", "left"], "horizon": 5}
        (answer,) = pivot.credit("frozenlake", [episode])
        assert isinstance(answer, Unsolved) and word in answer.detail


def test_a_search_beyond_the_cap_is_no_guess() -> None:
    (answer,) = pivot.credit("sokoban", [FAILURE], max_states=5)
    assert isinstance(answer, Unsolved) and answer.reason == "solver_limit"


def test_what_cannot_be_credited_is_refused() -> None:
    with pytest.raises(CertifyError, match=r"svg: its certificate is a convention.*use the scores"):
        pivot.credit("svg", [{"initial_state": "<svg/>", "actions": ["svg"], "horizon": 2}])
    with pytest.raises(CertifyError, match="rule: found 'advantage', expected one of progress, slack, pivot"):
        pivot.credit("sokoban", [FAILURE], rule="advantage")
    for wrong in (math.nan, "much", None, True):
        with pytest.raises(CertifyError, match="expected a finite number"):
            pivot.credit("sokoban", [FAILURE], rule=lambda _, wrong=wrong: wrong)  # pyright: ignore[reportArgumentType]


def test_a_solver_with_distances_alone_measures_needs_and_safe_actions() -> None:
    case = Case("o.A.G", ("left", "left"), 3, states=("o.A.G", "oA..G"))
    (measured,) = CorridorSolver().measure([case])
    assert measured == Needs([2, 3, None], [("right",), ()])
