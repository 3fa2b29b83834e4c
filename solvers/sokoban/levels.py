"""Distances of whole Sokoban levels: look-up of any state, and uniform sampling of levels by solution length.

A backward search from the solved states reaches every solvable state of a level at its exact distance ``d``, the fewest
moves to solve it. Level generators sample a state of a given distance, scripted policies look up the distance after
each action.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ...core.errors import LevelError
from ...core.identity import below
from ..base import DistanceMap
from .board import Board, State, cells_of, clean_text, parse_level, parse_room
from .search import SMALL, WORTH, PlainSearch, SokobanSearch

MAX_STATES = 20_000_000
"""Default of the maximum number of states per search."""


@lru_cache(maxsize=1024)
def read_board(text: str) -> Board:
    """Parse a level.

    Raises:
        LevelError: the text is not a well-formed level.
    """
    return Board.of(parse_level(text))


class Engine:
    """Choice of the search of each level, from the work of this process so far."""

    work = 0
    """States of larger levels in the batches so far."""

    @classmethod
    def expect(cls, boards: Iterable[Board]) -> None:
        """Count the levels of a batch."""
        cls.work += sum(states for board in boards if (states := board.most_states) > SMALL)

    @classmethod
    def search(cls, board: Board, max_states: int) -> SokobanSearch:
        """Return a search of a level; a cap that could be reached decides the same at any time."""
        states = board.most_states
        if states <= SMALL or (states <= max_states and cls.work <= WORTH):
            return PlainSearch(board, max_states)
        from .large import LargeSearch  # noqa: PLC0415 - imports numba

        return LargeSearch(board, max_states)


def search_of(board: Board, max_states: int, depth: int | None) -> SokobanSearch:
    """Search a level to a depth (None for no limit).

    Raises:
        TooLargeError: the level has more than ``max_states`` states.
    """
    Engine.expect([board])
    search = Engine.search(board, max_states)
    search.extend(depth)
    return search


@dataclass(frozen=True)
class SokobanDistances(DistanceMap):
    """Distances of all states of one level, optionally limited to ``limit``."""

    search: SokobanSearch
    limit: int | None

    def _state(self, text: str) -> State:
        board = read_board(text)
        if board.room != self.search.board.room:
            raise LevelError("the state is of a different level; walls, targets and the number of boxes must be equal")
        return board.boxes, board.player

    def distance(self, state_text: str) -> int | None:
        """Return the distance of a state; see :meth:`DistanceMap.distance`."""
        return self.search.need(self._state(state_text), self.limit)

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distances after each action; see :meth:`DistanceMap.after_each_action`."""
        state = self._state(state_text)
        return tuple(self.search.need(self.search.move(state, code), self.limit) for code in range(4))


def sample_level(
    room: str, boxes: int, low: int, high: int, rng: random.Random, max_states: int = MAX_STATES
) -> str | None:
    """Return a level of ``room`` that needs at least ``low`` and at most ``high`` moves, or None if there is none.

    The depth is sampled uniformly from the depths in [low, high] that occur, then a state uniformly from that depth.

    Args:
        room: XSB text of walls, floor and at least ``boxes`` targets, without player and boxes.
        boxes: number of boxes to place.
        low: minimum number of moves; 0 allows solved states.
        high: maximum number of moves.
        rng: random generator of both samples.
        max_states: maximum number of states within ``high`` moves.

    Raises:
        LevelError: the text is not a valid room.
        CertifyError: the room has more than ``max_states`` states.
    """
    board = Board.of(parse_room(room, boxes), boxes)
    search = search_of(board, max_states, high)
    counts = search.counts()
    depths = [depth for depth in range(max(low, 0), min(high + 1, len(counts))) if counts[depth]]
    if not depths:
        return None
    depth = depths[below(rng, len(depths))]
    return _draw(room, board, search.state_at(depth, below(rng, counts[depth])))


def _draw(room: str, board: Board, state: State) -> str:
    """Write boxes and player into the text of a room."""
    lines = [list(line) for line in clean_text(room).translate({45: " ", 95: " "}).split("\n")]
    for cell, plain, on_target in [*((cell, "$", "*") for cell in cells_of(state[0])), (state[1], "@", "+")]:
        y, x = board.top + cell // board.stride, board.left + cell % board.stride
        lines[y] += " " * (x + 1 - len(lines[y]))
        lines[y][x] = on_target if lines[y][x] == "." else plain
    return "\n".join("".join(line) for line in lines)
