"""Distances of whole Sokoban levels: look-up of any state, and uniform sampling of levels by solution length.

A backward search from the solved states reaches every solvable state of a level at its exact distance ``d``, the fewest
moves to solve it. Level generators use the search log to sample a state of a given distance, scripted
policies to look up the distance after each action.
"""

import random
from dataclasses import dataclass

import numpy as np

from ...errors import CertifyError, LevelError
from ...identity import below
from ..base import DistanceMap
from . import kernel
from .board import parse_levels
from .layout import BOXES, CODE, ENTRIES, LEFT, LEVELS, MASK_AT, OK, STATES, STRIDE, TOP, WORDS, Boards, Space
from .text import clean_text, parse_level, parse_room

MAX_STATES = 20_000_000
"""Default of the maximum number of states per search."""


def _compile_text(text: str, room_boxes: int = 0) -> Boards:
    codes = np.frombuffer(clean_text(text).encode("ascii", "replace"), np.uint8)
    return parse_levels(codes, np.array([codes.size]), room_boxes)


def read_level(text: str, room_boxes: int = 0) -> Boards:
    """Parse a level (or, with ``room_boxes``, a room without player and boxes) for the compiled search.

    Raises:
        LevelError: the text is not a well-formed level.
    """
    boards = _compile_text(text, room_boxes)
    if room_boxes or boards.shape[0, CODE] != OK:
        if room_boxes:
            parse_room(text, room_boxes)
        else:
            parse_level(text)
        if boards.shape[0, CODE] != OK:
            raise LevelError("the level has no closed area; put walls '#' around the floor")
    return boards


def _explore(boards: Boards, depth_limit: int | None, max_states: int) -> Space:
    space = kernel.explore(boards, -1 if depth_limit is None else depth_limit, max_states)
    if space.counts[STATES] > max_states:
        raise CertifyError(
            f"the level has more than {max_states} states; raise max_states, lower the depth limit or use a smaller"
            " level"
        )
    return space


def _same_room(boards: Boards, others: Boards) -> bool:
    """Return whether two levels have the same floor, targets and number of boxes."""
    one, two = boards.shape[0], others.shape[0]
    at, other, words = one[MASK_AT], two[MASK_AT], 2 * one[WORDS]
    columns = slice(TOP, BOXES + 1)
    same_shape = one[columns].tobytes() == two[columns].tobytes()
    return same_shape and boards.masks[at : at + words].tobytes() == others.masks[other : other + words].tobytes()


@dataclass(frozen=True)
class SokobanDistances(DistanceMap):
    """Distances of all states of one level, optionally limited to ``depth_limit``."""

    boards: Boards
    space: Space

    @classmethod
    def of(cls, initial_state: str, depth_limit: int | None, max_states: int) -> "SokobanDistances":
        """Search the level of ``initial_state``.

        Raises:
            LevelError: the text is not a well-formed level.
            CertifyError: there are more than ``max_states`` states.
        """
        boards = read_level(initial_state)
        return cls(boards, _explore(boards, depth_limit, max_states))

    def _look_up(self, state_text: str, after: bool) -> list[int | None]:
        boards = _compile_text(state_text)
        if boards.shape[0, CODE] != OK:
            parse_level(state_text)
        if not _same_room(self.boards, boards):
            raise LevelError("the state is of a different level; walls, targets and the number of boxes must be equal")
        return [None if depth < 0 else depth for depth in kernel.depths_after(boards, self.space, after).tolist()]

    def distance(self, state_text: str) -> int | None:
        """Return the distance of a state; see :meth:`DistanceMap.distance`."""
        return self._look_up(state_text, False)[0]

    def after_each_action(self, state_text: str) -> tuple[int | None, ...]:
        """Return the distances after each action; see :meth:`DistanceMap.after_each_action`."""
        return tuple(self._look_up(state_text, True)[1:])


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
        CertifyError: there are more than ``max_states`` states.
    """
    boards = read_level(room, boxes)
    space = _explore(boards, high, max_states)
    words = int(boards.shape[0, WORDS])
    log = space.log[: space.counts[ENTRIES] * (words + 1)].reshape(-1, words + 1)
    bits = np.bitwise_count(log[:, :words]).sum(axis=1, dtype=np.int64)
    starts = space.starts[: space.counts[LEVELS] + 1].tolist()
    depths = [
        depth for depth in range(max(low, 0), min(high + 1, len(starts) - 1)) if starts[depth] < starts[depth + 1]
    ]
    if not depths:
        return None
    depth = depths[below(rng, len(depths))]
    entries = np.arange(starts[depth], starts[depth + 1])
    rows = (log[entries, words] >> 32) * (2 * words + 1)
    # States are sorted, because a seed's level must not depend on the order of the search.
    entries = entries[np.lexsort([space.rows[rows + word] for word in range(words)])]
    ends = np.cumsum(bits[entries])
    number = below(rng, int(ends[-1]))
    place = int(np.searchsorted(ends, number, side="right"))
    number -= int(ends[place - 1]) if place else 0
    *player_words, link = log[entries[place]].tolist()
    row = (link >> 32) * (2 * words + 1)
    return _draw(room, boards, _cells(space.rows[row : row + words].tolist()), _cells(player_words)[number])


def _cells(words: list[int]) -> list[int]:
    """List the cells of a bitboard."""
    return [64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def _draw(room: str, boards: Boards, boxes: list[int], player: int) -> str:
    """Write boxes and player into the text of a room."""
    shape = boards.shape[0]
    top, left, stride = int(shape[TOP]), int(shape[LEFT]), int(shape[STRIDE])
    lines = [list(line) for line in clean_text(room).translate({45: " ", 95: " "}).split("\n")]
    for cell, plain, on_target in [*((cell, "$", "*") for cell in boxes), (player, "@", "+")]:
        y, x = top + cell // stride, left + cell % stride
        lines[y] += " " * (x + 1 - len(lines[y]))
        lines[y][x] = on_target if lines[y][x] == "." else plain
    return "\n".join("".join(line) for line in lines)


__all__ = ["MAX_STATES", "SokobanDistances", "read_level", "sample_level"]
