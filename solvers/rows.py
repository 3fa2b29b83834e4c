"""What the compiled searches hand back: one row of numbers an episode, and its translation into a verdict.

Shared by the exact solvers, whose four actions are always up, down, left, right.
"""

from collections.abc import Mapping, Sequence

from .base import Case, Certificate, Unsolved, Verdict

ACTIONS = ("up", "down", "left", "right")
INVALID = "invalid"
"""The word for a reply without a usable action: it costs a turn and changes nothing."""

CODES = {name: code for code, name in enumerate((*ACTIONS, INVALID))}
MAX_HORIZON = 1_000_000

# Columns of a row. FEASIBLE holds one bit an action; the witness lies between the previous row's PLAN_END and its own.
STATUS, PIVOT, BEFORE, AFTER, FALLBACK, AT_START, FEASIBLE, PLAN_END = range(8)

# Statuses. SOLVED and LOST carry in PIVOT the number of actions after which that happened.
LABELLED, SOLVED, LIMIT, LOST = range(4)

INFINITE = -1
"""The distance of a state from which there is no solution."""

_ACTION_SETS = tuple(tuple(name for bit, name in enumerate(ACTIONS) if mask >> bit & 1) for mask in range(16))


def bad_episode(case: Case) -> Unsolved | None:
    """Return why the actions of a case cannot be an episode, or None when they can."""
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
    """Return a level in our symbols when all of its own are among ``symbols`` and one of them is a player's."""
    cells = set("".join(text.split()))
    if not cells <= symbols.keys() or not cells & set(players):
        return text
    rows = ("".join(line.split()) for line in text.strip().splitlines())
    return "\n".join("".join(symbols[cell] for cell in row) for row in rows)


def verdict(row: Sequence[int], witness: tuple[str, ...], horizon: int, unit: str) -> Verdict:
    """Translate the row of a labelled episode."""
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
