"""Levels read from a picture of Sokoban or FrozenLake, by exact comparison of its tiles.

A picture is read only if every cell is one of the known tiles, pixel by pixel, in one way alone: those of PIVOT, which
for FrozenLake are gymnasium's, and those of gym-sokoban 0.0.6. Anything else, such as a JPEG, is refused.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..core.errors import LevelError
from ..core.images import Frame, frame_id
from ..environments.frozenlake.sprites import draw_map, draw_player
from ..environments.sokoban.levels import level_text, parse_level
from ..environments.sokoban.sprites import BOX, CELL_CODES, PLAYER, TARGET, WALL, tiles

_SMALLEST, _LARGEST = 16, 128
"""Sides of a cell, pixels."""
_MOST_CELLS = 64
"""Most rows or columns."""

_GYM_SOKOBAN = {
    "ebe1432f3d25c5b857474a7334547411dedb34eca5d820e6299af81ce789ca51": WALL,
    "dd2bbfac3b8f21acb123fade7afa4782bb29357a365c5dfa49594f70a9625bd3": 0,
    "c06c0765f93d559c83ad6085df18d76b0c8efc14e0cf2d887ee2ea9fbbcca894": TARGET,
    "d9bd57665db5cd19d9f47d534adfb25f5585ac98c11e7c60c8540f99a36a8882": BOX | TARGET,
    "b303a29f80efc11b7f4da3d3f303b0d8633a05811d4f50dc814758bb2dd93d16": BOX,
    "287b6e9631e2f0f6106c05e716d046b84ea0f2ce02d314d66073794d4543d5d4": PLAYER,
    "c405eca5ed380749ec3a51095cf5f89425e30faa865dd7042ffaecf9cc989713": PLAYER | TARGET,
}
"""Codes of cells by the frame id of gym-sokoban's tiles, files of ``gym_sokoban/envs/surface`` of release 0.0.6."""


def read_level(env: str, frame: Frame) -> str | None:
    """Return the state text that a picture shows; None if it is not a picture of exactly known tiles."""
    reader = _READERS.get(env)
    levels = {level for side in _sides(frame) if (level := reader(frame, side)) is not None} if reader else set[str]()
    return levels.pop() if len(levels) == 1 else None


def _sides(frame: Frame) -> Iterator[int]:
    """Yield the sides that the cells of a picture may have."""
    common = math.gcd(*frame.shape[:2])
    for side in range(_SMALLEST, min(common, _LARGEST) + 1):
        if common % side == 0 and max(frame.shape[:2]) // side <= _MOST_CELLS:
            yield side


def _cells(frame: Frame, side: int) -> NDArray[np.uint8]:
    """Return the cells of a picture: shape (rows, columns, side, side, 3)."""
    rows, columns = frame.shape[0] // side, frame.shape[1] // side
    return np.ascontiguousarray(frame.reshape(rows, side, columns, side, 3).transpose(0, 2, 1, 3, 4))


def _sokoban(frame: Frame, side: int) -> str | None:
    codes_of_tiles = {tiles(side)[code].tobytes(): code for code in CELL_CODES}
    codes = bytearray()
    for cell in _cells(frame, side).reshape(-1, side, side, 3):
        code = codes_of_tiles.get(cell.tobytes())
        if code is None and side == _SMALLEST:
            code = _GYM_SOKOBAN.get(frame_id(cell))
        if code is None:
            return None
        codes.append(code)
    level = level_text(codes, frame.shape[1] // side)
    try:
        parse_level(level)
    except LevelError:
        return None
    return level


def _frozenlake(frame: Frame, side: int) -> str | None:
    rows, columns = frame.shape[0] // side, frame.shape[1] // side
    letters, players = np.full((rows, columns), ""), np.zeros((rows, columns), np.bool_)
    cells = _cells(frame, side)
    for letter in "SFHG":
        plain = draw_map((letter * columns,) * rows, side)
        played = plain.copy()
        for row, column in np.ndindex(rows, columns):
            draw_player(played, row, column, side)
        for picture, has_player in ((plain, False), (played, True)):
            same = (_cells(picture, side) == cells).all(axis=(2, 3, 4))
            if (same & (letters != "")).any():
                return None
            letters[same], players[same] = letter, has_player
    board = ["".join(line) for line in letters.tolist()]
    if (letters == "").any() or players.sum() != 1 or (letters == "S").sum() != 1 or not (letters == "G").any():
        return None
    row, column = (int(each) for each in np.argwhere(players)[0])
    return "\n".join(board if board[row][column] == "S" else [*board, f"@ {row} {column}"])


_READERS: dict[str, Callable[[Frame, int], str | None]] = {"sokoban": _sokoban, "frozenlake": _frozenlake}
