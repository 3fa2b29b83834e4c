"""Search of a large Sokoban level with the compiled kernel, backward and, where that helps, from both sides."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import kernel
from .bits import ENTRIES, LEVELS, STATES, Space
from .board import Board, SokobanSearch, State, cells_of
from .kernel import BEYOND, INFINITE, UNKNOWN

_WORD = (1 << 64) - 1


class LargeSearch(SokobanSearch):
    """Compiled search; see the module docstring."""

    def __init__(self, board: Board, max_states: int) -> None:
        """Create a search whose level 0 is every solved state."""
        super().__init__(board, max_states)
        self._words = (board.size + 63) // 64
        column = [1 << cell for cell in range(0, board.size, board.stride)]
        everything, first = (1 << board.size) - 1, sum(column)
        arrive = everything, everything, everything & ~(first << board.stride - 1), everything & ~first
        masks = board.floor, board.targets, board.live, board.area, *arrive
        self._board = (
            np.array([board.stride, self._words, board.count]),
            np.concatenate([self._array(mask) for mask in masks]),
            np.array(board.near, np.int32),
        )
        self._keep(kernel.begin(self._board, max_states))
        if self._space.counts[STATES] > max_states:
            raise self.too_large()

    def _array(self, cells: int) -> NDArray[np.uint64]:
        return np.array([cells >> shift & _WORD for shift in range(0, 64 * self._words, 64)], np.uint64)

    def _keep(self, arrays: Any) -> None:
        self._arrays, self._space = arrays, Space(*arrays)

    def _advance(self) -> None:
        self._keep(kernel.advanced(self._arrays, self._board, self.max_states))
        if self._space.counts[STATES] > self.max_states:
            raise self.too_large()

    def _depth(self, state: State) -> int:
        """Return the depth of a state, or -1 if the backward search has not reached it."""
        return kernel.depth_in(self._arrays, self._words, self._array(state[0]), state[1])

    @property
    def _last(self) -> int:
        """Depth of the last level."""
        return int(self._space.counts[LEVELS]) - 1

    @property
    def _exhausted(self) -> bool:
        starts = self._space.starts
        return bool(starts[self._last + 1] == starts[self._last])

    def extend(self, depth: int | None) -> None:
        """Search to a depth; see the base class."""
        while not self._exhausted and (depth is None or self._last < depth):
            self._advance()

    def reach(self, state: State) -> int | None:
        """Search backward to a state; see the base class."""
        while (depth := self._depth(state)) < 0 and not self._exhausted:
            self._advance()
        return depth if depth >= 0 else None

    def need(self, state: State, most: int | None = None) -> int | None:
        """Search from both sides until they meet; see the base class."""
        depth = self._depth(state)
        if depth < 0:
            bound, key = -1 if most is None else most, self._array(state[0])
            arrays, depth = kernel.met(self._arrays, self._board, key, state[1], bound, self.max_states)
            self._keep(arrays)
            if depth == UNKNOWN:
                raise self.too_large()
        return None if depth in (INFINITE, BEYOND) or (most is not None and depth > most) else int(depth)

    def first_late(self, states: Sequence[State], budget: int) -> int:
        """Return the first state that is out of reach, by a search no deeper than its budget.

        The index is narrowed down from both sides: a search decides all states whose budget is at most its depth, and,
        if it reaches it, the last undecided state.
        """
        steps = len(states) - 1
        low, high = -1, steps if steps == budget else steps + 1
        for index in range(high):
            pushed = not index or states[index][0] != states[index - 1][0]
            if pushed and kernel.dead(self._board, self._array(states[index][0])):
                high = index
                break
        while low < high - 1:
            if 0 <= self._depth(states[high - 1]) <= budget - high + 1:
                low = high - 1
                continue
            due = low + 1 if self._exhausted else max(budget - self._last, low + 1)
            if due >= high:
                self._advance()
            elif 0 <= self._depth(states[due]) <= budget - due:
                low = due
            else:
                high = due
        return high

    def counts(self) -> list[int]:
        """Return the number of states at each depth; see the base class."""
        starts, bits = self._space.starts, self._bits()
        return [int(bits[starts[depth] : starts[depth + 1]].sum()) for depth in range(self._last + 1)]

    def _bits(self) -> NDArray[np.int64]:
        """Return the number of states of each entry of the log."""
        return np.bitwise_count(self._log()[:, : self._words]).sum(axis=1, dtype=np.int64)

    def _log(self) -> NDArray[np.uint64]:
        width = self._words + 1
        return self._space.log[: self._space.counts[ENTRIES] * width].reshape(-1, width)

    def state_at(self, depth: int, number: int) -> State:
        """Return a state by its number; see the base class."""
        words, log, starts = self._words, self._log(), self._space.starts
        entries = np.arange(starts[depth], starts[depth + 1])
        rows = (log[entries, words] >> 32) * (2 * words + 1)
        entries = entries[np.lexsort([self._space.rows[rows + word] for word in range(words)])]
        ends = np.cumsum(self._bits()[entries])
        place = int(np.searchsorted(ends, number, side="right"))
        *players, link = log[entries[place]].tolist()
        row = (link >> 32) * (2 * words + 1)
        boxes = _number(self._space.rows[row : row + words].tolist())
        return boxes, cells_of(_number(players))[number - (int(ends[place - 1]) if place else 0)]


def _number(words: list[int]) -> int:
    return sum(word << 64 * index for index, word in enumerate(words))
