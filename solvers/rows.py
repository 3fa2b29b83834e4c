"""Results of the compiled searches: one row of numbers per episode, and its conversion into a verdict.

Used by the exact solvers, whose actions are always up, down, left, right.
"""

from collections.abc import Mapping, Sequence

from .base import Case, Certificate, Unsolved, Verdict

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
    if 0 < len(actions) <= horizon <= MAX_HORIZON and CODES.keys() >= set(actions):
        return None
    if not actions:
        detail = "the episode has no actions; at least one is needed"
    elif len(actions) > horizon:
        detail = f"the episode has {len(actions)} actions, more than its horizon of {horizon}"
    elif horizon > MAX_HORIZON:
        detail = f"the horizon is {horizon}; at most {MAX_HORIZON} is supported"
    else:
        step, action = next((step, action) for step, action in enumerate(actions) if action not in CODES)
        detail = f"unknown action {action!r} at step {step}; use one of {', '.join(CODES)}"
    return Unsolved("bad_episode", detail)


def translated(text: str, symbols: Mapping[str, str], players: str) -> str:
    """Return a level converted to PIVOT's symbols if it uses only ``symbols`` and has a player; else None."""
    cells = set("".join(text.split()))
    if not cells <= symbols.keys() or not cells & set(players):
        return text
    rows = ("".join(line.split()) for line in text.strip().splitlines())
    return "\n".join("".join(symbols[cell] for cell in row) for row in rows)


def verdict(row: Sequence[int], witness: tuple[str, ...], horizon: int, unit: str) -> Verdict:
    """Convert the row of a labelled episode into a verdict."""
    _, pivot, before, after, fallback, at_start, feasible, _ = row
    budget = horizon - pivot
    lost = after == INFINITE
    certificate = Certificate(
        "exact",
        unit,  # pyright: ignore[reportArgumentType]
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
        _ACTION_SETS[feasible],
    )
