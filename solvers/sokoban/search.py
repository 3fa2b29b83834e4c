"""Plain backward search of a small Sokoban level, and the choice between it and the compiled search.

Both give the same answers. The compiled one is worth its compilation, or the time to load it, from some amount of work
on; the demo never gets there.
"""

from abc import abstractmethod
from collections.abc import Iterable
from itertools import combinations

from ..puzzles import Search, TooLargeError
from .board import Board, State, cells_of

SMALL = 5_000
"""Most states of a level that is always searched in Python, which takes 10 ms at most."""
WORTH = 1_000_000
"""States of larger levels, over all batches of the process, up to which they are searched in Python, too."""


class SokobanSearch(Search):
    """Rules of a level; subclasses search it."""

    success = "every box is on a target"
    ending = "solved the level"

    def __init__(self, board: Board, max_states: int) -> None:
        """Create a search that keeps at most ``max_states`` states."""
        self.board, self.max_states = board, max_states
        self.start: State = board.boxes, board.player
        self._open = ~board.targets

    def move(self, state: State, direction: int) -> State:
        """Return the state after a move, which may be blocked; see the base class."""
        return self.board.move(state, direction)

    def is_solved(self, state: State) -> bool:
        """Return whether every box is on a target."""
        return not state[0] & self._open

    @abstractmethod
    def counts(self) -> list[int]:
        """Return the number of states at each depth that was searched."""

    @abstractmethod
    def state_at(self, depth: int, number: int) -> State:
        """Return a state of a depth by its number, in the order of boxes and player."""

    def too_large(self) -> TooLargeError:
        """Return the error of a search that would keep too many states."""
        limit = f"a search met more than max_states = {self.max_states} states"
        return TooLargeError(f"{limit}; raise max_states, lower the limit of depth or use a smaller level")


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
