"""Search of a Sokoban level: distances of all its states, and uniform sampling of levels by solution length.

A backward search from the solved states reaches every solvable state of a level at its exact distance ``d``, the fewest
moves to solve it. Level generators sample a state of a given distance, scripted policies look up the distance after
each action. Small levels are searched in plain Python here, large ones by compiled code, which is worth its
compilation, or the time to load it, from some amount of work on. Both give the same answers.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from ...core.errors import LevelError
from ...core.identity import below
from ..base import DistanceMap
from .board import Board, SokobanSearch, State, cells_of, clean_text, parse_level, parse_room

SMALL = 5_000
"""Most states of a level that is always searched in Python, which takes 10 ms at most."""
WORTH = 1_000_000
"""States of larger levels, over all batches of the process, up to which they are searched in Python, too."""


class PlainSearch(SokobanSearch):
    """Search in Python, level by level from the solved states."""

    def __init__(self, board: Board, max_states: int) -> None:
        """Create a search whose level 0 is every solved state: boxes on targets, the player on any free cell."""
        super().__init__(board, max_states)
        self._needs: dict[State, int] = {}
        self._levels: list[list[State]] = []
        solved = (sum(1 << cell for cell in chosen) for chosen in combinations(cells_of(board.targets), board.count))
        self._add((boxes, player) for boxes in solved for player in cells_of(board.area & ~boxes))

    def _add(self, states: Iterable[State]) -> None:
        """Add a level of states that are new, or raise if there are too many."""
        depth, needs, level = len(self._levels), self._needs, list[State]()
        for state in states:
            if state not in needs:
                needs[state] = depth
                level.append(state)
        if len(needs) > self.max_states:
            for state in level:
                del needs[state]
            raise self.too_large()
        self._levels.append(level)

    def _before(self) -> Iterable[State]:
        """Yield the states one move before those of the last level."""
        near = self.board.near
        for boxes, player in self._levels[-1]:
            for direction in range(4):
                came_from = near[4 * player + (direction ^ 1)]
                if came_from < 0 or boxes >> came_from & 1:
                    continue
                yield boxes, came_from
                ahead = near[4 * player + direction]
                if ahead >= 0 and boxes >> ahead & 1:
                    yield boxes ^ (1 << ahead | 1 << player), came_from

    def extend(self, depth: int | None) -> None:
        """Search to a depth; see the base class."""
        while self._levels[-1] and (depth is None or len(self._levels) <= depth):
            self._add(self._before())

    def need(self, state: State, most: int | None = None) -> int | None:
        """Return the distance of a state; see the base class."""
        while (need := self._needs.get(state)) is None:
            if not self._levels[-1] or (most is not None and len(self._levels) > most):
                return None
            self._add(self._before())
        return None if most is not None and need > most else need

    def counts(self) -> list[int]:
        """Return the number of states at each depth; see the base class."""
        return [len(level) for level in self._levels]

    def state_at(self, depth: int, number: int) -> State:
        """Return a state by its number; see the base class."""
        return sorted(self._levels[depth])[number]


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
    boxes_there, player = search.state_at(depth, below(rng, counts[depth]))
    lines = [list(line) for line in clean_text(room).translate({45: " ", 95: " "}).split("\n")]
    for cell, plain, on_target in [*((cell, "$", "*") for cell in cells_of(boxes_there)), (player, "@", "+")]:
        y, x = board.top + cell // board.stride, board.left + cell % board.stride
        lines[y] += " " * (x + 1 - len(lines[y]))
        lines[y][x] = on_target if lines[y][x] == "." else plain
    return "\n".join("".join(line) for line in lines)
