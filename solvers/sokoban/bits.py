"""Arrays of the compiled search, and operations on the words and bits of its bitboards."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.compiled import compiled

# Numbers in `Board.shape`.
STRIDE, WORDS, BOXES = range(3)
# Order of the bitboards in `Board.masks`: floor of the closed areas with objects, targets, cells from which a box alone
# can be pushed to a target, floor of the player's area, and the cells that a shift up, down, left or right may reach.
CELLS, TARGETS, LIVE, AREA, ARRIVE = range(5)
# Indices of `Space.counts`.
ROWS, ENTRIES, LEVELS, STATES, FORWARD = range(5)


class Board(NamedTuple):
    """A level: three numbers, eight bitboards, and four neighbours per cell (-1 if not floor)."""

    shape: NDArray[np.int64]
    masks: NDArray[np.uint64]
    near: NDArray[np.int32]


class Space(NamedTuple):
    """State of a search. Its arrays may be reallocated, so functions that add to it return the new tuple."""

    rows: NDArray[np.uint64]
    """Per row 2 W + 1 words: boxes, player cells reached with them, last entry (all ones if none)."""
    slots: NDArray[np.int32]
    """Open-addressing hash table from boxes to rows; -1 is free."""
    log: NDArray[np.uint64]
    """Per entry W + 1 words: player cells; last: row in the upper half, the row's previous entry + 1 in the lower."""
    starts: NDArray[np.int64]
    """First entry of each level (depth); the level that is being filled has index ``counts[LEVELS]``."""
    counts: NDArray[np.int64]
    """Rows, entries, finished levels, states; and 1 for a forward search, 0 for a backward one."""


ZERO, ONE = np.uint64(0), np.uint64(1)
ALL = ~ZERO
LOW6 = 63
LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_32 = np.uint64(32)
MIX_1 = np.uint64(0x9E3779B97F4A7C15)
MIX_2 = np.uint64(0xD6E8FEB86659FD93)

# Trailing zeros of a word by de Bruijn multiplication: TRAILING[(lowest bit * DE_BRUIJN) >> 58].
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
SHIFT_58 = np.uint64(58)
TRAILING = np.zeros(64, np.int64)
for _i in range(64):
    TRAILING[((1 << _i) * 0x03F79D71B4CB0A89 % (1 << 64)) >> 58] = _i

# Only functions that Python calls get a Python wrapper, which saves compile time.
inner = partial(compiled, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@inner
def lowest_bit(word):
    """Return the index of the lowest set bit of a non-zero word."""
    return TRAILING[((word & (~word + ONE)) * DE_BRUIJN) >> SHIFT_58]


@inner
def bit_count(word):
    """Return the number of set bits."""
    total = 0
    while word != ZERO:
        word &= word - ONE
        total += 1
    return total


@inner
def has(board, base, cell):
    """Return whether ``cell`` is in the bitboard that starts at ``base``."""
    return (board[base + (cell >> 6)] >> np.uint64(cell & LOW6)) & ONE != ZERO


@inner
def flip(board, base, cell):
    """Toggle ``cell``."""
    board[base + (cell >> 6)] ^= ONE << np.uint64(cell & LOW6)


@inner
def longer(array: Any, size: int) -> Any:
    """Return a copy of ``array`` with length ``size``; a slice assignment would take two seconds to compile."""
    other = np.empty(size, array.dtype)
    for i in range(array.size):
        other[i] = array[i]
    return other
