"""Keys of states: games with state in odd places, games with odd values, and random ones.

The truth is a table, searched without any key. A label is right, or there is none.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import pivot
import pytest
from pivot.core.errors import CertifyError
from pivot.solvers.base import Unsolved, Verdict
from pivot.solvers.closure import checks
from pivot.tests.solvers import locks, odd_games
from pivot.tests.solvers.locks import GOAL, HONEST, RANDOM, TABLE, TRAP
from pivot.tests.solvers.odd_games import NASTY

HORIZON = 12
QUICK: dict[str, Any] = {"checks": 16, "fresh": False}
State = Any
WON, LOST = "won", "lost"


def lock(state: State, action: int) -> State:
    digit = TABLE[state][action]
    return {GOAL: WON, TRAP: LOST}.get(digit, digit)


def late(state: State, action: int) -> State:
    digit = lock(state[0], action)
    return digit if digit in (WON, LOST) else LOST if state[1] == 8 else (digit, state[1] + 1)


def seasons(state: State, action: int) -> State:
    season = (state[1] + 1) % 3
    digit = lock(state[0], action) if season else state[0]
    return digit if digit in (WON, LOST) else (digit, season)


def slow(state: State, action: int) -> State:
    ticks = min(state[1] + 1, 30)
    digit = lock(state[0], action if ticks < 30 else 1)
    return digit if digit in (WON, LOST) else (digit, ticks)


def even(state: State, action: int) -> State:
    digit = lock(state[0], action)
    if digit == WON:
        return WON if state[1] else LOST
    return digit if digit == LOST else (digit, not state[1])


@pytest.fixture(autouse=True)
def _few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take fewer waits and clocks set ahead than a user's search does: each step reads all attributes."""
    monkeypatch.setattr(checks, "DELAYS", 3)
    monkeypatch.setattr(checks, "JUMPS", 1_000)


TRUTH: dict[str, tuple[Callable[[State, int], State], State]] = {
    "Late": (late, (0, 0)),
    "Seasons": (seasons, (0, 0)),
    "Slow": (slow, (0, 0)),
    "Even": (even, (0, False)),
}


def need(follow: Callable[[State, int], State], start: State) -> int | None:
    """Return the fewest turns to success, breadth first."""
    seen, front, turns = {start}, [start], 0
    while front:
        turns += 1
        after = [follow(state, action) for state in front for action in range(3)]
        if WON in after:
            return turns
        front = [state for state in dict.fromkeys(after) if state != LOST and state not in seen]
        seen.update(front)
    return None


def compare(graph: Any, name: str) -> int:
    """Compare labels of random episodes with the truth; return their number."""
    follow, start = TRUTH.get(name, (lock, 0))
    choose, labels = random.Random(1), 0
    for _ in range(40):
        states, actions = [start], list[int]()
        while len(actions) < HORIZON and states[-1] not in (WON, LOST):
            actions.append(choose.randrange(3))
            states.append(follow(states[-1], actions[-1]))
        needs = [None if state == LOST else 0 if state == WON else need(follow, state) for state in states]
        lost = [step for step, left in enumerate(needs[1:]) if left is None or left > HORIZON - 1 - step]
        answer = graph.certify([graph.actions[action] for action in actions], HORIZON)
        if states[-1] == WON:
            assert isinstance(answer, Unsolved) and answer.reason == "not_a_failure"
        elif isinstance(answer, Verdict):
            assert answer.pivot_step == (lost[0] if lost else len(actions) - 1), actions
            if answer.failure_mode != "out_of_budget":
                assert answer.certificate.after == needs[answer.pivot_step + 1]
            labels += 1
        else:
            assert answer.reason == "solver_limit"
    return labels


UNREADABLE = {
    *("mask", "ctypes pointer", "generator", "module of its own", "thread", "object that hides"),
    *("code", "file", "environment variable", "generator of numpy", "generator of Python", "random state"),
}
"""Places that no key reads: refused by name. All others are labelled."""


@pytest.mark.parametrize("name", NASTY)
def test_state_in_odd_places_is_read_or_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch a place that a key reads wrongly or overlooks.

    Some keys read all modules of the process; one holds what cannot be read, whatever tests ran before.
    """
    monkeypatch.setattr(odd_games, "STREAM", (each for each in ()), raising=False)
    if name in UNREADABLE:
        refusals = (
            "cannot be read in full|touches what is outside|drew a random number|in this process, .* in a new one"
        )
        with pytest.raises(CertifyError, match=refusals):
            pivot.explore(NASTY[name], horizon=HORIZON, checks=16)
    else:
        assert compare(pivot.explore(NASTY[name], horizon=HORIZON, **QUICK), name) > 25


@pytest.mark.parametrize("name", HONEST)
def test_normal_games_are_labelled_without_settings(name: str) -> None:
    """Catch a key or a check that refuses a normal value; a new process orders sets and hashes texts differently."""
    graph = pivot.explore(HONEST[name], horizon=HORIZON, checks=16, fresh=name in ("FrozenSets", "Texts"))
    assert compare(graph, name) > 25


@pytest.mark.parametrize("kind", RANDOM)
def test_a_step_that_draws_is_random(kind: type[gymnasium.Env[Any, Any]]) -> None:
    """A failure of one step in twenty is found whatever the level, because the generator moves."""
    expected = "lead to the same key|lead to two states" if kind is locks.FailsBySystem else "the environment is random"
    with pytest.raises(CertifyError, match=expected):
        pivot.explore(kind, checks=64)


def test_remedies_of_refusals_work() -> None:
    """A visible turn is part of the state or a named clock; wrappers of known packages are checked, too."""
    timed = pivot.explore(locks.Ticking, horizon=HORIZON, **QUICK)
    assert timed.limit == f"horizon = {HORIZON}" and len(timed.successors) > 20
    still = pivot.explore(locks.Ticking, clock=["turn"], **QUICK)
    assert (len(still.successors), still.limit) == (6, None)
    for graph in (timed, still):
        assert compare(graph, "Ticking") > 25
    counted = pivot.explore(locks.Late, clock=(), horizon=HORIZON, **QUICK)
    assert compare(counted, "Late") > 25
    with pytest.raises(CertifyError, match=r"drawing=\['window'\] if that decides nothing but pictures"):
        pivot.explore(locks.Windowed, **QUICK)
    assert compare(pivot.explore(locks.Windowed, drawing=["window"], **QUICK), "Windowed") > 25
    make = partial(gymnasium.make, "FrozenLake-v1", desc=["SFF", "FFF", "FFG"], is_slippery=False)
    lake = pivot.explore(lambda: locks.Wrapped(make()), **QUICK)
    assert (pivot.explore(make, **QUICK).safe_actions(0, 4), lake.safe_actions(0, 4)) == (("down", "right"), ("right",))
