"""Pictures of Sokoban cells, drawn with integer arithmetic only from the shapes in ``sprites.yaml``.

Shapes are boolean coverage masks with 4x4 samples per pixel, painted over each other and averaged with integers. The
pixels are therefore identical on every machine and with every library version, as frame ids (hashes of pixels) require.
"""

import operator
import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.data import load_data

TARGET, BOX, PLAYER, WALL = 1, 2, 4, 8
"""Bits of a cell code, which is their sum; 0 is bare floor, and a wall has no other bit."""

MIN_CELL = 16
_DATA: dict[str, Any] = load_data(__file__, "sprites.yaml")
LEGEND: dict[str, str] = _DATA["legend"]
"""Description of each cell; prompts use these texts, so that they agree with the pictures."""

_SPRITES = {
    0: ("floor",),
    TARGET: ("floor", "ring", "dot"),
    BOX: ("floor", "box"),
    BOX | TARGET: ("floor", "box on target"),
    PLAYER: ("floor", "player"),
    PLAYER | TARGET: ("floor", "ring", "player"),
    WALL: ("wall",),
}
CELL_CODES = tuple(_SPRITES)

_SAMPLES = 4  # per pixel and axis; 16 coverage levels look smooth and keep the number of colours small
_SHAPE = re.compile(r"([|&-])? ?(rect|disc|convex)((?: -?\d+)+)")
_JOIN = {"|": operator.or_, "&": operator.and_, "-": lambda mask, other: mask & ~other}


def _mask(shape: str, numbers: list[int], side: int) -> NDArray[np.bool_]:
    """Return which of ``side`` x ``side`` samples a shape covers.

    Positions are in 1/64 of a cell, multiplied by the number of samples to stay whole numbers.
    """
    x = (32 * (2 * np.arange(side, dtype=np.int64) + 1))[np.newaxis, :]
    y = x.T
    if shape == "rect":
        left, top, right, bottom = (number * side for number in numbers)
        return (x >= left) & (x < right) & (y >= top) & (y < bottom)
    if shape == "disc":
        across, along, radius = (number * side for number in numbers)
        return (x - across) ** 2 + (y - along) ** 2 <= radius**2
    corners = list(zip(numbers[::2], numbers[1::2], strict=True))
    inside = np.ones((side, side), np.bool_)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside &= (x1 - x0) * (y - y0 * side) - (y1 - y0) * (x - x0 * side) >= 0
    return inside


@cache
def tiles(cell: int) -> NDArray[np.uint8]:
    """Return the pictures of all cells, indexed by cell code: shape (9, cell, cell, 3), read-only."""
    pictures, side = np.zeros((WALL + 1, cell, cell, 3), np.uint8), cell * _SAMPLES
    for code, sprites in _SPRITES.items():
        rgb = np.zeros((side, side, 3), np.uint8)
        for line in (line for sprite in sprites for line in _DATA["sprites"][sprite]):
            colour, shapes = line.split(" ", 1)
            mask = np.zeros((side, side), np.bool_)
            for join, shape, numbers in _SHAPE.findall(shapes):
                mask = _JOIN[join or "|"](mask, _mask(shape, list(map(int, numbers.split())), side))
            rgb[mask] = _DATA["colours"][colour]
        # The average of the samples of every pixel, halves rounded up
        area = _SAMPLES * _SAMPLES
        blocks = rgb.reshape(cell, _SAMPLES, cell, _SAMPLES, 3).sum(axis=(1, 3), dtype=np.int64)
        pictures[code] = (blocks + area // 2) // area
    pictures.flags.writeable = False
    return pictures
