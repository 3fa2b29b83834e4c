"""FrozenLake: holes, paths over ice, detours."""

import re
from collections.abc import Mapping
from functools import lru_cache

from ..claims import claimed
from ..episode import FailedEpisode
from ..statements import Statement, statement
from .base import Domain, Failure, general_facts
from .grid import GRID_WORDINGS, amounts, grid_actions, grid_signs, single_moves

WORDINGS: Mapping[str, tuple[str, ...]] = {
    **GRID_WORDINGS,
    # What to look out for
    "watch_holes": (
        "Look at the next cell before every move: a hole ends the episode at once.",
        "Avoid stepping into a hole, which ends the episode.",
        "Before a move, check that the cell you would enter is not a hole.",
        "Keep away from the cells next to a hole unless the path needs them.",
    ),
    "short_path": (
        "Avoid detours on the ice: they use up the turns.",
        "Follow the shortest path over ice, and check that the turns left suffice for it.",
        "Plan the whole path over ice before the first move.",
    ),
    # What happened
    "near": (
        "Before step {step} the goal was {moves} away over ice, with {turns} left.",
        "Just before step {step} the shortest path over ice took {moves}, and the budget was {turns}.",
        "With {turns} left before step {step}, the goal could still be reached over ice in {moves}.",
    ),
    "too_far": (
        "After step {step} the shortest path over ice takes {moves}, but the budget is {turns}.",
        "Step {step} left a budget of {turns}, but the goal is still {moves} away over ice.",
        "From where step {step} ended, the shortest path over ice takes {moves}, more than the budget of {turns}.",
    ),
    "fell": (
        "The move {action} at step {step} ended in a hole.",
        "At step {step} the move {action} led into a hole, which ended the episode.",
        "Moving {action} at step {step} meant falling into a hole.",
    ),
    "fell_in_turn": (
        "A move of the turn {action} at step {step} ended in a hole.",
        "At step {step} a move of the turn {action} led into a hole, which ended the episode.",
        "The turn {action} at step {step} ended when one of its moves led into a hole.",
    ),
    "cut_off": (
        "After step {step} no path over ice led to the goal any more.",
        "Step {step} cut the player off from the goal.",
        "From where step {step} ended, no way over ice leads to the goal.",
    ),
    "no_path": (
        "No path over ice leads from the start to the goal.",
        "On this lake the goal cannot be reached from the start.",
        "The start of this lake is cut off from the goal.",
    ),
    "long_path": (
        "From the start the shortest path over ice takes {moves}, but the budget is {turns}.",
        "The goal is {moves} away from the start, more than the budget of {turns}.",
        "The budget of {turns} is too small for the {moves} from the start to the goal.",
    ),
    "path_open": (
        "When the log ends after step {step}, the goal is {moves} away over ice, with {turns} left.",
        "After step {step}, the last one, the shortest path over ice takes {moves} and the budget is {turns}.",
        "The log stops after step {step}, {moves} over ice from the goal and with {turns} left.",
    ),
}

_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


@lru_cache(maxsize=4096)
def holes_around(level: str, actions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directions in which a hole is next to the player after some actions; none for an unknown format."""
    *rows, last = level.splitlines() or [""]
    start = next(((y, row.index("S")) for y, row in enumerate((*rows, last)) if "S" in row), None)
    if start is None:
        return ()  # the replay filter reports it
    y, x = start
    try:
        if last.startswith("@"):
            y, x = map(int, last.split()[1:])
        else:
            rows.append(last)
        for action in actions:
            down, right = _STEPS.get(action, (0, 0))
            if 0 <= y + down < len(rows) and 0 <= x + right < len(rows[y]):
                y, x = y + down, x + right
        cells = {name: (y + down, x + right) for name, (down, right) in _STEPS.items()}
        return tuple(
            name
            for name, (row, column) in cells.items()
            if 0 <= row < len(rows) and 0 <= column < len(rows[row]) and rows[row][column] == "H"
        )
    except (ValueError, IndexError):
        return ()


def fell(episode: FailedEpisode) -> bool:
    """Whether the last action of an episode ended in a hole."""
    return _fell_at(episode, len(episode.actions) - 1)


def _fell_at(episode: FailedEpisode, step: int) -> bool:
    """Whether a move of a turn ended in a hole."""
    before = single_moves(episode.actions[:step])
    moves = single_moves(episode.actions[step : step + 1])
    ways = (holes_around(episode.initial_state, (*before, *moves[:made])) for made in range(len(moves)))
    return any(move in holes for move, holes in zip(moves, ways, strict=True))


_FALL = re.compile(r"\b(fell|fallen|drowned|ended in (?:a|the) hole|stepped into (?:a|the) hole)\b", re.IGNORECASE)
_LATE = re.compile(r"\b(ran out of (?:turns|time)|turns ran out|budget ran out)\b", re.IGNORECASE)


class FrozenLakeDomain(Domain):
    """Wording and statements about FrozenLake."""

    pivot: str = "the first step after which the goal could no longer be reached in the turns that were left"
    advice: str = (
        "Look first for a step into a hole, then for a move that left too few turns. A turn that changed nothing is "
        "seldom the pivot, but it is when that turn was the one too many."
    )
    log_advice: str = "Such turns have action=invalid or moved=false."
    meanings: Mapping[str, str] = {
        "timeout": "the agent stands on ice and a path to the goal exists, but it is longer than the turns left",
        "deadlock": "the agent fell into a hole, or no path over ice leads to the goal",
    }
    wordings = WORDINGS

    def signs(self, failure: Failure) -> list[Statement]:
        """Return what to look out for; see the base class."""
        if failure.verdict.failure_mode == "deadlock" and not failure.verdict.infeasible_at_start:
            return [statement("watch_holes")]
        return grid_signs(failure, "short_path")

    def facts(self, failure: Failure) -> list[Statement]:
        """Return what happened; see the base class."""
        step, action = failure.step, failure.action
        distances = amounts(failure, "near", "too_far", "path_open", ("no_path", "long_path"))
        if failure.verdict.failure_mode != "deadlock" or failure.verdict.infeasible_at_start:
            return [*distances, *general_facts(failure)]
        if not _fell_at(failure.episode, step):
            return [statement("cut_off", step=step), *distances]
        return [statement("fell_in_turn" if failure.is_long else "fell", step=step, action=action), *distances]

    def actions(self, failure: Failure) -> list[Statement]:
        """Return the moves that begin a shortest path; see the base class."""
        return grid_actions(failure)

    def contradiction(self, failure: Failure, text: str) -> str | None:
        """Return words about a fall that never happened, or about a budget where the pivot is a fall.

        An agent that ran out of turns may have fallen in a later one: then both are true.
        """
        if not fell(failure.episode):
            return claimed(_FALL, text)
        return claimed(_LATE, text) if failure.verdict.failure_mode == "deadlock" else None


DOMAIN = FrozenLakeDomain()
