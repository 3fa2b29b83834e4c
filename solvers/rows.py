"""Input and results of the compiled searches: codes of actions, and one row of numbers per episode.

**Turns of several actions.** Where a turn has 1 to m actions and success ends it, the need of a state is
``ceil(d / m)`` turns, with d its fewest actions to success: k turns have k * m actions at most, so success within k
turns implies d <= k * m; and a shortest path, cut after every m actions, consists of ``ceil(d / m)`` legal turns, since
its last turn may be shorter. So a state has enough turns left if and only if d is at most m times their number. The
kernels therefore get every turn filled up to m actions with ones that do nothing, and m times the horizon. An action
never lowers d by more than one, so once d exceeds the actions left it does so until the end, and the turn with the
first such action is the first after which the goal is out of reach.

Used by the exact solvers, whose actions are always up, down, left, right.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled
from .base import TURN_SEPARATOR, Case, Certificate, CertificateUnit, Needs, Unsolved, Verdict

ACTIONS = ("up", "down", "left", "right")
INVALID = "invalid"
"""Logged name of a reply without a usable action: it costs a turn and changes nothing."""

CODES = {name: code for code, name in enumerate((*ACTIONS, INVALID))}
MAX_HORIZON = 1_000_000

# Columns of a row. FEASIBLE has one bit per action; the witness is between the previous row's PLAN_END and its own.
STATUS, PIVOT, BEFORE, AFTER, FALLBACK, AT_START, FEASIBLE, PLAN_END = range(8)

# Statuses. For SOLVED and LOST, PIVOT is the number of actions after which that happened.
LABELLED, SOLVED, LIMIT, LOST = range(4)

INFINITE = -1
"""Distance of an unsolvable state."""

_ACTION_SETS = tuple(tuple(name for bit, name in enumerate(ACTIONS) if mask >> bit & 1) for mask in range(16))


def bad_episode(case: Case) -> Unsolved | None:
    """Return why the actions of a case are not a valid episode, or None."""
    actions, horizon = case.actions, case.horizon
    usable = CODES.keys() >= set(actions) or all(_is_turn(action, case.actions_per_turn) for action in actions)
    if 0 < len(actions) <= horizon <= MAX_HORIZON and usable:
        return None
    if not actions:
        detail = "the episode has no actions; at least one is needed"
    elif len(actions) > horizon:
        detail = f"the episode has {len(actions)} actions, more than its horizon of {horizon}"
    elif horizon > MAX_HORIZON:
        detail = f"the horizon is {horizon}; at most {MAX_HORIZON} is supported"
    else:
        most = case.actions_per_turn
        step, action = next((step, action) for step, action in enumerate(actions) if not _is_turn(action, most))
        several = f", or up to {most} of the first four joined with {TURN_SEPARATOR!r}" if most > 1 else ""
        detail = f"unknown action {action!r} at step {step}; use one of {', '.join(CODES)}{several}"
    return Unsolved("bad_episode", detail)


def _is_turn(name: str, most: int) -> bool:
    parts = name.split(TURN_SEPARATOR)
    return name in CODES or (len(parts) <= most and set(parts) <= set(ACTIONS))


def action_codes(cases: Sequence[Case]) -> bytes:
    """Return the codes of all actions of valid cases, every turn filled up to the actions that it may have."""
    codes = bytearray()
    for case in cases:
        if case.actions_per_turn == 1:
            codes += bytes([CODES[action] for action in case.actions])
            continue
        for turn in case.actions:
            done = bytes([CODES[action] for action in turn.split(TURN_SEPARATOR)])
            codes += done.ljust(case.actions_per_turn, bytes([CODES[INVALID]]))
    return bytes(codes)


def translated(text: str, symbols: Mapping[str, str], players: str) -> str:
    """Return a level converted to PIVOT's symbols if it uses only ``symbols`` and has a player; else None."""
    cells = set("".join(text.split()))
    if not cells <= symbols.keys() or not cells & set(players):
        return text
    rows = ("".join(line.split()) for line in text.strip().splitlines())
    return "\n".join("".join(symbols[cell] for cell in row) for row in rows)


def verdict(row: Sequence[int], witness: tuple[str, ...], case: Case, unit: CertificateUnit) -> Verdict:
    """Convert the row of a labelled episode into a verdict; ``witness`` is a plan of single actions."""
    _, pivot, before, after, fallback, at_start, feasible, _ = row
    budget = case.horizon - pivot
    lost = after == INFINITE
    safe, most = _ACTION_SETS[feasible], case.actions_per_turn
    if most > 1:
        unit = "turns"
        before, after = (need if need == INFINITE else ceil(need / most) for need in (before, after))
        turns = range(0, len(witness), most)
        witness = tuple(TURN_SEPARATOR.join(witness[begin : begin + most]) for begin in turns)
        safe += tuple(turn for turn in witness[:1] if TURN_SEPARATOR in turn)
    certificate = Certificate(
        "exact",
        unit,
        budget,
        budget - 1,
        None if before == INFINITE else before,
        None if lost else after,
        not lost,
    )
    return Verdict(
        pivot,
        "deadlock" if lost else "timeout",
        certificate,
        (),
        fallback == 1,
        at_start == 1,
        None if at_start else witness,
        safe,
    )


class Measures(NamedTuple):
    """What the kernels measure in the states and turns of a batch of episodes, all concatenated."""

    needs: NDArray[np.int64]
    """Shape (states,): fewest actions to success, INFINITE if they are more than the horizon."""
    safe: NDArray[np.int64]
    """Shape (turns,): one bit per action after which the goal is still within reach, if it is the only one."""
    plans: NDArray[np.int8]
    """Shape (turns, actions): where turns have several actions, the first turn of the first shortest plan, then -1."""


@compiled
def new_measures(ends, turns):  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    """Return the status of each episode, LABELLED, and empty columns of :class:`Measures`."""
    total, widest = 0, 1
    for episode in range(ends.size):
        total += (ends[episode] - (ends[episode - 1] if episode else 0)) // turns[episode]
        widest = max(widest, turns[episode])
    return (
        np.zeros(ends.size, np.int64),
        np.full(total + ends.size, INFINITE, np.int64),
        np.zeros(total, np.int64),
        np.full((total, widest), -1, np.int8),
    )


def episode_needs(cases: Sequence[Case], measures: Measures) -> list[Needs]:
    """Convert the measures of a batch, in turns."""
    needs, safe = measures.needs.tolist(), measures.safe.tolist()
    plans = measures.plans.tolist() if measures.plans.shape[1] > 1 else None
    answers: list[Needs] = []
    state = step = 0
    for case in cases:
        turns, most = len(case.actions), case.actions_per_turn
        of_states, of_turns = needs[state : state + turns + 1], safe[step : step + turns]
        sets = [_ACTION_SETS[mask] for mask in of_turns]
        if most > 1 and plans is not None:
            sets = [single + _long_turn(plan) for single, plan in zip(sets, plans[step : step + turns], strict=True)]
        answers.append(Needs([None if need < 0 else -(-need // most) for need in of_states], sets))
        state, step = state + turns + 1, step + turns
    return answers


def _long_turn(plan: Sequence[int]) -> tuple[str, ...]:
    actions = [ACTIONS[code] for code in plan if code >= 0]
    return (TURN_SEPARATOR.join(actions),) if len(actions) > 1 else ()
