"""Layout of the arrays of the compiled Sokoban code: columns, codes, and named tuples.

A set of cells is a *bitboard*: ``W`` words of 64 bits over the bounding box of the level's cells, cell (r, c) at bit
``r * stride + c``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Reasons why a text is not a level; `text.py` turns them into messages.
OK, BAD_CHAR, NO_PLAYER, TWO_PLAYERS, NO_BOX, FEW_TARGETS, OPEN, TOO_LARGE = range(8)

MAX_CELLS = 65_536
"""Maximum number of cells (lines x columns) of a level."""

# Columns of `Boards.shape`.
CODE, TOP, LEFT, HEIGHT, STRIDE, WORDS, BOXES, PLAYER, MASK_AT, NEAR_AT = range(10)

# Order of the bitboards in `Boards.masks`.
CELLS, TARGETS, START, LIVE, AREA, ARRIVE = range(6)
MASKS = ARRIVE + 4


class Boards(NamedTuple):
    """Parsed levels of a batch."""

    shape: NDArray[np.int64]
    """(levels, 10): problem code, bounding box, words per bitboard, boxes, player's cell, offsets into the rest."""
    masks: NDArray[np.uint64]
    """Nine bitboards per level from ``MASK_AT`` on: floor of the closed areas with objects; targets; boxes; live cells
    (from which a box can be pushed to a target if there are no other boxes); floor of the player's area (of every area
    in a room without a player); and for up, down, left, right the cells that a shift of the board may reach."""
    near: NDArray[np.int32]
    """Four neighbours per cell (up, down, left, right; -1 if not floor) from ``NEAR_AT`` on."""


# Special values of distances besides INFINITE.
BEYOND, UNKNOWN = -2, -3

# Indices of `Space.counts`.
ROWS, ENTRIES, LEVELS, STATES, FORWARD = range(5)


class Board(NamedTuple):
    """A level: its row of ``Boards.shape``, its bitboards and its neighbours."""

    shape: NDArray[np.int64]
    masks: NDArray[np.uint64]
    near: NDArray[np.int32]


class Space(NamedTuple):
    """State of a search. Its arrays may be reallocated, so functions that add to it return the new tuple."""

    rows: NDArray[np.uint64]
    """(rows, 2 W + 1): boxes, player cells reached with them, last entry (all ones if none)."""
    slots: NDArray[np.int32]
    """Open-addressing hash table from boxes to rows; -1 is free."""
    log: NDArray[np.uint64]
    """(entries, W + 1): player cells; last word: row in the upper half, the row's previous entry + 1 in the lower."""
    starts: NDArray[np.int64]
    """First entry of each level (depth); the level that is being filled has index ``counts[LEVELS]``."""
    counts: NDArray[np.int64]
    """Rows, entries, finished levels, states; and 1 for a forward search, 0 for a backward one."""
