"""FrozenLake: holes, paths over ice, detours."""

import re
from functools import lru_cache

from ...core.errors import LevelError
from ...solvers.frozenlake.solver import search_lake
from ...solvers.puzzles import ACTIONS
from ..claims import claimed
from ..episode import FailedEpisode
from ..statements import Statement, statement
from .base import Domain, Failure, general_facts, read_texts
from .grid import amounts, grid_actions, grid_signs, single_moves


@lru_cache(maxsize=4096)
def holes_around(level: str, moves: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directions in which a hole is next to the player after some moves; none for an invalid level."""
    try:
        lake = search_lake(level)
    except LevelError:
        return ()  # the replay filter reports it
    cell = lake.start
    for move in moves:
        cell = lake.move(cell, ACTIONS.index(move)) if move in ACTIONS else cell
    return tuple(name for code, name in enumerate(ACTIONS) if lake.is_lost(lake.move(cell, code)))


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

    pivot, advice, log_advice, meanings, wordings = read_texts("frozenlake", "grid")

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
