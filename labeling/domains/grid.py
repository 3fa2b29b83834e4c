"""Common parts of both puzzles: four moves, the moves that still lead to the goal, and running out of turns."""

from collections.abc import Sequence

from ...environments.base import actions_per_turn
from ...solvers.base import TURN_SEPARATOR, Verdict
from ..statements import Statement, statement
from .base import Failure, general_actions, general_signs


def single_moves(turns: Sequence[str]) -> tuple[str, ...]:
    """Return the moves of several turns as one sequence."""
    return tuple(move for turn in turns for move in turn.split(TURN_SEPARATOR))


def grid_actions(failure: Failure, kind: str = "move") -> list[Statement]:
    """Return the moves, or turns of several moves, that begin a shortest plan."""
    return general_actions(failure, "turn" if actions_per_turn(failure.episode.env_config) > 1 else kind)


def grid_signs(failure: Failure, shortest: str) -> list[Statement]:
    """Return the signs of turns that ran out: what the pivot step wasted, else the kind for the ``shortest`` way."""
    *wasted, turns = general_signs(failure)
    if failure.verdict.infeasible_at_start:
        return [*wasted, statement("check_start"), turns]
    return [*(wasted or [statement(shortest)]), turns]


def amounts(failure: Failure, before: str, after: str, open_end: str, hopeless: tuple[str, str]) -> list[Statement]:
    """Return what the exact distances of a puzzle prove, in statements of the given kinds.

    Args:
        failure: the failure.
        before: what the goal still took before the pivot step.
        after: what it takes after it, where turns ran out.
        open_end: the same where the log ends with the goal within reach.
        hopeless: where the goal was never within reach, and where it was too far from the start.
    """
    verdict: Verdict = failure.verdict
    certificate, step, (moves, left), (turns, rest) = verdict.certificate, failure.step, failure.needs, failure.turns
    if verdict.infeasible_at_start:
        if certificate.before is None:
            return [statement(hopeless[0])]
        return [statement(hopeless[1], moves=moves, turns=turns)]
    if verdict.fallback:
        return [statement(open_end, step=step, moves=left, turns=rest)]
    statements = [statement(before, step=step, moves=moves, turns=turns)]
    if certificate.after is not None:
        statements.insert(0, statement(after, step=step, moves=left, turns=rest))
    return statements
