"""Sokoban: rooms, boxes that are lost, detours."""

from functools import lru_cache
from typing import ClassVar, NamedTuple

from ...core.errors import LevelError
from ...core.plugins import Settings
from ...solvers.base import Case, Solver, Unsolved, Verdict
from ...solvers.puzzles import ACTIONS
from ...solvers.sokoban.search import read_board
from ..base import Draft, Filter, Objection
from ..episode import FailedEpisode
from ..replay import DisagreementError
from ..statements import Statement, statement
from .base import Domain, Failure, general_facts, read_texts
from .grid import amounts, grid_actions, grid_signs, single_moves


class Push(NamedTuple):
    """Surroundings of the cell to which a box was pushed."""

    in_corner: bool
    """Walls on two sides that meet, and no target."""
    at_wall: bool
    """A wall right behind it, in the direction of the push."""
    no_target: bool
    """No target in the free cells on both sides of it, across the direction of the push."""


@lru_cache(maxsize=4096)
def push_at(level: str, moves: tuple[str, ...]) -> Push | None:
    """Return the cell to which the last move pushed a box; None if it pushed none."""
    try:
        board = read_board(level)
    except LevelError:
        return None  # the replay filter reports it
    state, pushed = (board.boxes, board.player), 0
    for move in moves:
        boxes = state[0]
        state = board.move(state, ACTIONS.index(move)) if move in ACTIONS else state
        pushed = state[0] & ~boxes
    if not pushed:
        return None
    cell, last = pushed.bit_length() - 1, ACTIONS.index(moves[-1])
    up, down, left, right = stopped = [each < 0 for each in board.near[4 * cell : 4 * cell + 4]]
    is_corner = (up or down) and (left or right) and not board.targets & pushed
    line = pushed
    for side in (2, 3) if last < 2 else (0, 1):
        beside = cell
        while (beside := board.near[4 * beside + side]) >= 0:
            line |= 1 << beside
    return Push(is_corner, stopped[last], not line & board.targets)


class SokobanDomain(Domain):
    """Wording and statements about Sokoban."""

    pivot, advice, log_advice, meanings, wordings = read_texts("sokoban", "grid")

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
                "certificate", "the mode is deadlock, but the certificate says that the goal is within reach"
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
