"""Sokoban: rooms, boxes that are lost, detours."""

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, NamedTuple

from ...core.plugins import Settings
from ...solvers.base import Case, Solver, Unsolved, Verdict
from ..base import Draft, Filter, Objection
from ..episode import FailedEpisode
from ..replay import DisagreementError
from ..statements import Statement, statement
from .base import Domain, Failure, general_facts
from .grid import GRID_WORDINGS, amounts, grid_actions, grid_signs, single_moves

WORDINGS: Mapping[str, tuple[str, ...]] = {
    **GRID_WORDINGS,
    # What to look out for
    "watch_corners": (
        "Before a push, look at the cell where the box would end: a box never leaves a corner again.",
        "Avoid pushing a box into a corner that is not a target, because it can never be pushed out.",
        "Watch for corners without a target: a box that is pushed into one stays there for good.",
    ),
    "watch_walls": (
        "Avoid pushing a box against a wall unless a target lies along that wall.",
        "Before pushing a box to a wall, look for a target along it, since a box cannot be pulled back.",
        "A box that was pushed against a wall can only be moved along that wall.",
    ),
    "check_pushes": (
        "Before every push, check that every box can still be brought to a target afterwards.",
        "Look ahead before you push: a box can be pushed but never pulled.",
        "Avoid a push that cannot be undone unless every box still has a way to a target.",
    ),
    "no_detours": (
        "Avoid detours: they use up the turns.",
        "Before each reply, check that the turns left still suffice to solve the room.",
        "Take the shortest way to the place from which a box has to be pushed.",
    ),
    # What happened
    "solvable": (
        "Before step {step} the room could be solved in {moves}, with {turns} left.",
        "Just before step {step} the shortest solution took {moves}, and the budget was {turns}.",
        "With {turns} left before step {step}, the room was still solvable in {moves}.",
    ),
    "too_few": (
        "After step {step} the room still takes {moves}, but the budget is {turns}.",
        "Step {step} left a budget of {turns}, but the shortest solution then takes {moves}.",
        "From where step {step} ended, the shortest solution takes {moves}, more than the budget of {turns}.",
    ),
    "unsolvable": (
        "After the push {action} at step {step}, no number of moves solves the room.",
        "The push {action} at step {step} made the room unsolvable.",
        "Once the box was pushed {action} at step {step}, the room could no longer be solved.",
    ),
    "unsolvable_turn": (
        "After the turn {action} at step {step}, no number of moves solves the room.",
        "The turn {action} at step {step} made the room unsolvable.",
        "Once the turn {action} was played at step {step}, the room could no longer be solved.",
    ),
    "corner": (
        "The push {action} at step {step} left the box in a corner that is not a target.",
        "At step {step} the push {action} moved the box into a corner without a target.",
        "Pushed {action} at step {step}, the box came to rest in a corner that is not a target.",
    ),
    "at_wall": (
        "The push {action} at step {step} moved the box against a wall.",
        "At step {step} the push {action} drove the box against a wall.",
        "Pushed {action} at step {step}, the box came to rest against a wall.",
    ),
    "never": (
        "From its first position this room cannot be solved by any number of moves.",
        "No number of moves solves this room from where it begins.",
        "This room was unsolvable from the start.",
    ),
    "too_long": (
        "The room takes {moves} from the start, but the budget is {turns}.",
        "From the start the shortest solution takes {moves}, more than the budget of {turns}.",
        "The budget of {turns} is too small for this room, which takes {moves}.",
    ),
    "still_solvable": (
        "When the log ends after step {step}, the room can still be solved in {moves}, with {turns} left.",
        "After step {step}, the last one, the shortest solution takes {moves} and the budget is {turns}.",
        "The log stops after step {step}, with {turns} left for a room that takes {moves}.",
    ),
    # What to do
    "push": (
        "At step {step}, do not push {action}; move {instead} instead.",
        "At step {step}, move {instead} rather than pushing {action}.",
        "At step {step}, instead of pushing {action}, go {instead}.",
        "At step {step}, choose {instead}: it keeps the goal within reach, but the push {action} does not.",
    ),
}


class Push(NamedTuple):
    """Surroundings of the cell to which a box was pushed."""

    in_corner: bool
    """Walls on two sides that meet, and no target."""
    at_wall: bool
    """A wall right behind it, in the direction of the push."""
    no_target: bool
    """No target in the free cells on both sides of it, across the direction of the push."""


MOST_CELLS = 1000
"""Cells of a row that are read, whatever a level is like."""
_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


@lru_cache(maxsize=4096)
def push_at(level: str, actions: tuple[str, ...]) -> Push | None:
    """Return where the last action pushed a box to, by walking the level; None where it pushed none."""
    rows = level.splitlines()
    cells = {(y, x): cell for y, row in enumerate(rows) for x, cell in enumerate(row)}
    walls = {place for place, cell in cells.items() if cell == "#"}
    boxes = {place for place, cell in cells.items() if cell in "$*"}
    player = next((place for place, cell in cells.items() if cell in "@+"), None)
    if player is None:
        return None  # the replay filter reports it
    pushed: tuple[int, int] | None = None
    for action in actions:
        pushed = None
        if action not in _STEPS:
            continue
        (y, x), (down, right) = player, _STEPS[action]
        ahead, beyond = (y + down, x + right), (y + 2 * down, x + 2 * right)
        if ahead in walls or (ahead in boxes and (beyond in walls or beyond in boxes)):
            continue
        if ahead in boxes:
            boxes.remove(ahead)
            boxes.add(beyond)
            pushed = beyond
        player = ahead
    if pushed is None:
        return None
    y, x = pushed
    stopped = {name: (y + down, x + right) in walls for name, (down, right) in _STEPS.items()}
    is_corner = (stopped["up"] or stopped["down"]) and (stopped["left"] or stopped["right"])
    targets = {place for place, cell in cells.items() if cell in ".*+"}
    down, right = _STEPS[actions[-1]]
    line = {pushed, *_free_cells(pushed, (right, down), walls), *_free_cells(pushed, (-right, -down), walls)}
    return Push(is_corner and pushed not in targets, stopped[actions[-1]], line.isdisjoint(targets))


def _free_cells(start: tuple[int, int], step: tuple[int, int], walls: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the cells from a cell on in a direction, up to the next wall."""
    cells: list[tuple[int, int]] = []
    y, x = start[0] + step[0], start[1] + step[1]
    while (y, x) not in walls and min(y, x) >= 0 and len(cells) < MOST_CELLS:
        cells.append((y, x))
        y, x = y + step[0], x + step[1]
    return cells


class SokobanDomain(Domain):
    """Wording and statements about Sokoban."""

    pivot: str = "the first step after which the room could no longer be solved in the turns that were left"
    advice: str = (
        "Look first at moves that pushed a box, then at detours. A turn that changed nothing is seldom the pivot, but "
        "it is when that turn was the one too many."
    )
    log_advice: str = "Such turns have action=invalid or moved=false."
    meanings: Mapping[str, str] = {
        "timeout": "the room could still be solved, but it takes more moves than there were turns left",
        "deadlock": "a box can never be brought to a target again, however many moves are made",
    }
    wordings = WORDINGS

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        if failure.verdict.failure_mode != "deadlock" or failure.verdict.infeasible_at_start:
            return grid_signs(failure, "no_detours")
        push = _push(failure)
        if push is not None and push.in_corner:
            return [statement("watch_corners"), statement("check_pushes")]
        first = ["watch_walls"] * (push is not None and push.at_wall and push.no_target)
        return [statement(kind) for kind in (*first, "check_pushes")]

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what happened; see the base class."""
        step, action = failure.step, failure.action
        exact = amounts(failure, "solvable", "too_few", "still_solvable", ("never", "too_long"))
        is_lost = failure.verdict.failure_mode == "deadlock" and not failure.verdict.infeasible_at_start
        push = _push(failure) if is_lost else None
        if is_lost and failure.is_long:
            return [statement("unsolvable_turn", step=step, action=action), *exact]
        if push is None:
            return [*exact, *general_facts(failure)]
        lost = [statement("unsolvable", step=step, action=action)]
        if push.in_corner:
            lost.append(statement("corner", step=step, action=action))
        elif push.at_wall:
            lost.append(statement("at_wall", step=step, action=action))
        return [*lost, *exact]

    def actions(self, failure: Failure) -> list[Statement]:
        """Return the moves that begin a shortest solution; see the base class."""
        pushed = failure.verdict.failure_mode == "deadlock" and not failure.is_long
        return grid_actions(failure, "push" if pushed else "move")


def _push(failure: Failure) -> Push | None:
    """Return the push of the pivot step; None also for a turn of several moves, which may have several."""
    if failure.is_long:
        return None
    return push_at(failure.episode.initial_state, single_moves(failure.episode.actions[: failure.step + 1]))


DOMAIN = SokobanDomain()


@lru_cache(maxsize=1 << 14)
def _verdict_on(solver: Solver, state: str) -> Verdict | Unsolved:
    """Return the solver's verdict on wasting a turn in ``state``, or why it has none."""
    return solver.certify([Case(state, ["invalid"], 1)])[0]


class SokobanDeadlockFilter(Filter):
    """A deadlock is accepted only if re-execution reaches the state after ``t*`` that the solver pinned.

    Pinned means dead: the solver's certificate says that no plan of any length leads from ``s_{t*+1}`` to success. The
    environment, with its own rules, re-executes the actions up to and including ``t*``; its state text goes back to the
    solver as a level of its own, and the solver has to find that one dead, too. So neither a label moved to another
    step nor a difference between the two sets of rules can pass. An episode that cannot be re-executed that far is
    left to the ``replay`` rule.
    """

    name: ClassVar[str] = "sokoban_deadlock"
    config_type: ClassVar[type[Settings]] = Settings
    environments: ClassVar[frozenset[str] | None] = frozenset({"sokoban"})

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None:
        """Return ``certificate``, ``unproved`` or ``not_dead``."""
        verdict = draft.verdict
        if verdict.failure_mode != "deadlock":
            return None
        if verdict.certificate.reachable_after is not False or verdict.certificate.after is not None:
            return Objection(
                "certificate",
                "the mode is deadlock, but the certificate says that the goal is within reach",
            )
        try:
            state = draft.replays.of(episode).state_after(episode, verdict.pivot_step + 1)
        except DisagreementError:
            return None
        answer = _verdict_on(draft.solver, state)
        if isinstance(answer, Verdict) and answer.failure_mode == "deadlock":
            return None
        after = f"the state after step {verdict.pivot_step}"
        if isinstance(answer, Verdict):
            return Objection("not_dead", f"{after} can still be solved")
        kind = "not_dead" if answer.reason == "not_a_failure" else "unproved"
        return Objection(kind, f"{after}: {answer.reason}, {answer.detail}")
