"""Layout of the arrays that the compiled Sokoban code shares: columns, codes, and the named tuples around them.

A set of cells is a *bitboard*: ``W`` words of 64 bits over the bounding box of the level's cells, cell (r, c) at bit
``r * stride + c``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Why a text is not a level; `sokoban_text.py` turns them into messages.
OK, BAD_CHAR, NO_PLAYER, TWO_PLAYERS, NO_BOX, FEW_TARGETS, OPEN, TOO_LARGE = range(8)

MAX_CELLS = 65_536
"""Largest lines x columns of a level."""

# Columns of `Boards.shape`.
CODE, TOP, LEFT, HEIGHT, STRIDE, WORDS, BOXES, PLAYER, MASK_AT, NEAR_AT = range(10)

# Order of the bitboards in `Boards.masks`.
CELLS, TARGETS, START, LIVE, AREA, ARRIVE = range(6)
MASKS = ARRIVE + 4


class Boards(NamedTuple):
    """The parsed levels of a batch."""

    shape: NDArray[np.int64]
    """(levels, 10): problem code, bounding box, words a bitboard, boxes, player's cell, offsets into the rest."""
    masks: NDArray[np.uint64]
    """Nine bitboards a level from ``MASK_AT`` on: floor of the closed areas that hold an object; targets; boxes; live
    cells (from which a box can be pushed to a target on an empty floor); floor of the player's area (of every area in a
    room without a player); and for up, down, left, right the bits where a whole-board shift that way may arrive."""
    near: NDArray[np.int32]
    """Four neighbours a cell (up, down, left, right; -1 for no floor) from ``NEAR_AT`` on."""


# Distances that are no number of moves, beside INFINITE.
BEYOND, UNKNOWN = -2, -3

# Places in `Space.counts`.
ROWS, ENTRIES, LEVELS, STATES, FORWARD = range(5)


class Board(NamedTuple):
    """One level: its row of ``Boards.shape``, its bitboards and its neighbours."""

    shape: NDArray[np.int64]
    masks: NDArray[np.uint64]
    near: NDArray[np.int32]


class Space(NamedTuple):
    """A search. It grows, so functions that may add to it return the new one."""

    rows: NDArray[np.uint64]
    """(rows, 2 W + 1): boxes, player cells seen with them, last entry (all ones when none)."""
    slots: NDArray[np.int32]
    """Open-addressing hash table from boxes to rows; -1 is free."""
    log: NDArray[np.uint64]
    """(entries, W + 1): player cells; row in the upper half of the last word, the row's previous entry + 1 below."""
    starts: NDArray[np.int64]
    """First entry of each level (depth); the level being filled is number ``counts[LEVELS]``."""
    counts: NDArray[np.int64]
    """Rows, entries, finished levels, states; and 1 for a search by moves, 0 for one by moves undone."""
