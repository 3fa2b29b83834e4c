"""Exact labels of puzzle episodes: what the solvers of Sokoban and FrozenLake share.

A puzzle brings a :class:`Search`, which moves and knows the fewest actions from any state to success. Its actions are
always up, down, left, right.

**Turns of several actions.** Where a turn has 1 to m actions and success ends it, the need of a state is
``ceil(d / m)`` turns, with d its fewest actions to success: k turns have k * m actions at most, so success within k
turns implies d <= k * m; and a shortest path, cut after every m actions, consists of ``ceil(d / m)`` legal turns, since
its last turn may be shorter. So a state has enough turns left if and only if d is at most m times their number. Every
turn is therefore filled up to m actions with ones that do nothing, and the horizon counts actions. An action
never lowers d by more than one, so once d exceeds the actions left it does so until the end, and the turn with the
first such action is the first after which the goal is out of reach.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar, TypeVar

from ..core.errors import CertifyError, LevelError
from .base import TURN_SEPARATOR, Case, Certificate, Needs, Unsolved, Verdict

ACTIONS = ("up", "down", "left", "right")
INVALID = "invalid"
"""Logged name of a reply without a usable action: it costs a turn and changes nothing."""
MAX_HORIZON = 1_000_000

_CODES = {name: code for code, name in enumerate(ACTIONS)}
_SINGLE = {INVALID: (), **{name: (code,) for name, code in _CODES.items()}}


class TooLargeError(CertifyError):
    """A search found more states than its cap allows."""


class Search(ABC):
    """Rules and exact distances of one level; it searches as far as questions require."""

    start: Any
    """First state of the level; states are opaque values."""
    success: ClassVar[str]
    """Name of a success in messages, as in ``every box is on a target``."""
    ending: ClassVar[str]
    """Name of the last turn's effect, as in ``solved the level``."""

    @abstractmethod
    def move(self, state: Any, direction: int) -> Any:
        """Return the state after an action, a member of :data:`ACTIONS` by index."""

    @abstractmethod
    def is_solved(self, state: Any) -> bool:
        """Return whether a state is a success."""

    def is_lost(self, state: Any) -> bool:
        """Return whether the game is over without success."""
        del state
        return False

    @abstractmethod
    def need(self, state: Any, most: int | None = None) -> int | None:
        """Return the fewest actions to success; None if no plan leads there, or all take more than ``most``.

        Raises:
            TooLargeError: the search reached its cap of states.
        """

    def extend(self, depth: int | None) -> None:
        """Search all states within ``depth`` actions of success, so that later questions about them are cheap."""
        del depth

    def reach(self, state: Any) -> int | None:
        """Return the need of a state, and search all states that are at most as far from success."""
        return self.need(state)

    def first_late(self, states: Sequence[Any], budget: int) -> int:
        """Return the index of the first state whose need exceeds ``budget`` minus its index; the length if none does.

        What is out of reach remains so, since an action lowers the need by one at most.
        """
        return bisect_left(range(len(states)), True, key=lambda index: self.need(states[index], budget - index) is None)


Answer = TypeVar("Answer")


def answers(
    cases: Sequence[Case], search_of: Callable[[str], Search], answer_of: Callable[[Search, Case], Answer | Unsolved]
) -> list[Answer | Unsolved]:
    """Answer cases in order; ``search_of`` returns the search of a level, or raises LevelError if it is malformed."""
    made: list[Answer | Unsolved] = []
    for case in cases:
        try:
            made.append(bad_episode(case) or answer_of(search_of(case.initial_state), case))
        except LevelError as error:
            made.append(Unsolved("bad_episode", str(error)))
        except TooLargeError as error:
            made.append(Unsolved("solver_limit", str(error)))
    return made


def bad_episode(case: Case) -> Unsolved | None:
    """Return why the actions of a case are not a valid episode, or None."""
    actions, horizon, most = case.actions, case.horizon, case.actions_per_turn
    wrong = next((step for step, action in enumerate(actions) if not _is_turn(action, most)), None)
    if 0 < len(actions) <= horizon <= MAX_HORIZON and wrong is None:
        return None
    if not actions:
        detail = "the episode has no actions; at least one is needed"
    elif len(actions) > horizon:
        detail = f"the episode has {len(actions)} actions, more than its horizon of {horizon}"
    elif horizon > MAX_HORIZON:
        detail = f"the horizon is {horizon}; at most {MAX_HORIZON} is supported"
    else:
        step = wrong or 0
        several = f", or up to {most} of the first four joined with {TURN_SEPARATOR!r}" if most > 1 else ""
        detail = (
            f"unknown action {actions[step]!r} at step {step}; use one of {', '.join((*ACTIONS, INVALID))}{several}"
        )
    return Unsolved("bad_episode", detail)


def _is_turn(name: str, most: int) -> bool:
    if name in _SINGLE:
        return True
    parts = name.split(TURN_SEPARATOR)
    return len(parts) <= most and _CODES.keys() >= set(parts)


def translated(text: str, symbols: Mapping[str, str], players: str) -> str:
    """Return a level converted to PIVOT's symbols if it uses only ``symbols`` and has a player; else unchanged."""
    cells = set("".join(text.split()))
    if not cells <= symbols.keys() or not cells & set(players):
        return text
    rows = ("".join(line.split()) for line in text.strip().splitlines())
    return "\n".join("".join(symbols[cell] for cell in row) for row in rows)


def label(search: Search, case: Case) -> Verdict | Unsolved:
    """Label a failed episode."""
    most, states = case.actions_per_turn, [search.start]
    for name in case.actions:
        begin = len(states)
        for code in _codes(name):
            states.append(search.move(states[-1], code))
        states += [states[-1]] * (begin + most - len(states))
    steps, horizon = len(states) - 1, case.horizon * most
    for index, state in enumerate(states):
        done = ceil(index / most)
        if search.is_solved(state):
            return Unsolved("not_a_failure", f"{search.success} after {done} actions")
        if search.is_lost(state) and index <= steps - most:
            late = f"the agent is in a hole after {done} actions, but {len(case.actions) - done} more follow"
            return Unsolved("bad_episode", late)
    first = search.first_late(states, horizon)
    pivot = min(max(first - 1, 0), steps - 1) // most * most
    at_start, fallback = first == 0, first > steps
    plan: list[str] = []
    safe: tuple[str, ...] = ()
    if at_start:
        before = search.need(states[0])
    else:
        before = search.reach(states[pivot])
        plan = _plan(search, states[pivot], before or 0, before or 0)
        safe = _safe(search, states[pivot], horizon - most - pivot)
    after, step, pivot_action = search.need(states[pivot + most]), pivot // most, None
    if most > 1:
        if not fallback and not at_start and first - 1 - pivot < len(_codes(case.actions[step])):
            pivot_action = first - 1 - pivot  # the action after which the goal is out of reach
        before, after = (need if need is None else ceil(need / most) for need in (before, after))
    witness = tuple(TURN_SEPARATOR.join(plan[begin : begin + most]) for begin in range(0, len(plan), most))
    return Verdict(
        step,
        "deadlock" if after is None else "timeout",
        Certificate(
            "exact",
            "turns" if most > 1 else "moves",
            case.horizon - step,
            case.horizon - step - 1,
            before,
            after,
            after is not None,
        ),
        (),
        fallback,
        at_start,
        None if at_start else witness,
        safe + tuple(turn for turn in witness[:1] if TURN_SEPARATOR in turn),
        pivot_action,
    )


def _codes(name: str) -> tuple[int, ...]:
    """Return the codes of the actions of a turn."""
    single = _SINGLE.get(name)
    return tuple(_CODES[action] for action in name.split(TURN_SEPARATOR)) if single is None else single


def _plan(search: Search, state: Any, need: int, length: int) -> list[str]:
    """Return the first ``length`` actions of the first shortest plan from a state that needs ``need`` actions."""
    plan: list[str] = []
    for left in range(need - 1, need - 1 - length, -1):
        for action, code in _CODES.items():
            after = search.move(state, code)
            if search.need(after, left) is not None:
                plan.append(action)
                state = after
                break
    return plan


def _safe(search: Search, state: Any, left: int) -> tuple[str, ...]:
    """Return the actions after which success takes at most ``left`` more."""
    need, move = search.need, search.move
    return tuple([name for name, code in _CODES.items() if need(move(state, code), left) is not None])


def measure(search: Search, case: Case) -> Needs | Unsolved:
    """Measure every state and turn of an episode, which may be a success."""
    most, limit = case.actions_per_turn, case.horizon * case.actions_per_turn
    search.extend(limit)
    state, needs, safe = search.start, [search.need(search.start, limit)], list[tuple[str, ...]]()
    for turn, name in enumerate(case.actions, 1):
        if search.is_solved(state) or search.is_lost(state):
            end = search.ending if search.is_solved(state) else "fell into a hole"
            return Unsolved("bad_episode", f"actions follow the turn that {end}; leave them out")
        need, left = needs[-1], limit - turn * most
        single = _safe(search, state, left)
        if most > 1 and need is not None and need <= left + most:
            plan = _plan(search, state, need, min(most, need))
            single += (TURN_SEPARATOR.join(plan),) if len(plan) > 1 else ()
        safe.append(single)
        for code in _codes(name):
            state = state if search.is_solved(state) else search.move(state, code)
        needs.append(search.need(state, limit))
    return Needs([None if need is None else ceil(need / most) for need in needs], safe)
