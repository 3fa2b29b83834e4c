"""Credit per turn against a search over whole turns that only plays the environment, and against its own definition."""

import math
import random
from typing import Any

import pivot
import pytest
from pivot.core import plugins
from pivot.core.errors import CertifyError
from pivot.solvers.base import Case, Needs, Unsolved
from pivot.solvers.credit import RULES, TurnCredit
from pivot.tests.external.corridor.pivot_corridor.solver import CorridorSolver
from pivot.tests.solvers.turn_search import NAMES, Turns, play_turns

LEVEL = "######\n#@ $.#\n#    #\n######"
FAILURE = {"initial_state": LEVEL, "actions": ["down", "right", "right", "up"], "horizon": 4}
SUCCESS = {"initial_state": LEVEL, "actions": ["right", "right"], "horizon": 4}
FLAT: dict[str, dict[str, Any]] = {
    "sokoban": {"horizon": 7, "min_solution": 3, "max_solution": 6},
    "frozenlake": {"horizon": 7, "size": 4},
}
LONG: dict[str, dict[str, Any]] = {
    "sokoban": {"actions_per_turn": 3, "horizon": 5, "min_solution": 4, "max_solution": 13},
    "frozenlake": {"actions_per_turn": 4, "horizon": 5, "size": 6},
}


def _credit(env: str, episode: dict[str, Any], **settings: Any) -> tuple[TurnCredit, ...]:
    (answer,) = pivot.credit(env, [episode], **settings)
    assert not isinstance(answer, Unsolved), answer
    return answer


def _after(env: Any, state: str, turn: str) -> str:
    env.restore(b"0\n" + state.encode())
    env.step(env.encode_action(turn))
    return env.state_text()


def _check(name: str, settings: dict[str, Any], levels: int, rollouts: int) -> int:
    """Compare every field of the credit of random episodes with the search; return the number of turns."""
    env = plugins.load("environments", name).from_settings(settings)
    env.draw_frames = False
    horizon, most, rng, checked = env.config.horizon, env.config.actions_per_turn, random.Random(3), 0
    for seed in range(levels):
        level = env.make_task(env.config, seed).initial_state
        search = Turns(env, level).needs
        played = [play_turns(env, level, rng)[:2] for _ in range(rollouts)]
        episodes = [{"initial_state": level, "actions": turns, "horizon": horizon} for turns, _ in played]
        credits_ = pivot.credit(name, [each | {"actions_per_turn": most} for each in episodes])
        for (turns, states), answer in zip(played, credits_, strict=True):
            assert not isinstance(answer, Unsolved), answer
            needs = [need if (need := search.get(state, 99)) <= horizon else None for state in states]
            within = [need is not None and need <= horizon - t for t, need in enumerate(needs)]
            pivots = [t for t in range(len(turns)) if not within[t + 1] and (within[t] or (t == 0 and not within[0]))]
            assert [each.need_before for each in answer] == needs[:-1]
            assert [each.need_after for each in answer] == needs[1:]
            assert [each.within_reach for each in answer] == within[1:]
            assert [t for t, each in enumerate(answer) if each.is_pivot] == pivots[:1]
            for t, each in enumerate(answer):
                safe = [a for a in NAMES if search.get(_after(env, states[t], a), 99) <= horizon - 1 - t]
                assert list(each.safe_actions[: len(safe)]) == safe
                for plan in each.safe_actions[len(safe) :]:
                    assert most > 1
                    assert within[t] and search[_after(env, states[t], plan)] == search[states[t]] - 1
                checked += 1
    return checked


@pytest.mark.parametrize("name", FLAT)
def test_credit_equals_a_search_that_plays_the_environment(name: str) -> None:
    assert _check(name, FLAT[name], levels=12, rollouts=4) > 150


@pytest.mark.parametrize("name", LONG)
def test_credit_of_turns_of_several_actions(name: str) -> None:
    assert _check(name, LONG[name], levels=2, rollouts=3) > 15


@pytest.mark.long
@pytest.mark.parametrize("name", FLAT)
def test_credit_equals_the_search_on_two_thousand_levels(name: str) -> None:
    assert _check(name, FLAT[name], levels=2000, rollouts=4) > 30_000


def test_rules_are_functions_of_a_turn() -> None:
    scores = {rule: [each.score for each in _credit("sokoban", FAILURE, rule=rule)] for rule in RULES}
    assert scores == {"progress": [-1, 1, -1, 0], "slack": [0, 0, -1, -1], "pivot": [0, 0, -1, 0]}
    own = _credit("sokoban", FAILURE, rule=lambda turn: len(turn.safe_actions))
    assert [each.score for each in own] == [4, 2, 1, 0]


def test_progress_adds_up_to_what_a_success_needed() -> None:
    answer = _credit("sokoban", SUCCESS)
    assert sum(each.score for each in answer) == 2 and [each.is_pivot for each in answer] == [False, False]
    assert answer[-1].need_after == 0


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
