"""Pictures of Sokoban cells, drawn with integer arithmetic only.

Shapes are boolean coverage masks with 4x4 samples per pixel, painted over each other and averaged with integers. The
pixels are therefore identical on every machine and with every library version, as frame ids (hashes of pixels)
require. Lengths are in 1/64 of a cell; four units are one pixel at the smallest cell of 16 pixels. :data:`LEGEND`
describes each cell in words.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

TARGET, BOX, PLAYER, WALL = 1, 2, 4, 8
"""Bits of a cell code, which is their sum; 0 is bare floor, and a wall has no other bit."""

CELL_CODES = (0, TARGET, BOX, BOX | TARGET, PLAYER, PLAYER | TARGET, WALL)
MIN_CELL = 16

LEGEND = {
    "wall": "a dark red brick wall",
    "floor": "a plain light beige square",
    "target": "a red ring with a red dot in its middle",
    "box": "a brown wooden crate with a cross brace",
    "box on target": "a green crate with a white check mark",
    "player": "a small person in blue with a yellow cap",
    "player on target": "the person in blue standing in front of a red ring",
}
"""Description of each cell; prompts use these texts, so that they agree with the pictures."""

_SAMPLES = 4  # per pixel and axis; 16 coverage levels look smooth and keep the number of colours small

Colour = tuple[int, int, int]
Mask = NDArray[np.bool_]

_FLOOR: Colour = (232, 223, 205)
_FLOOR_LINE: Colour = (214, 203, 182)
_MORTAR: Colour = (74, 52, 50)
_BRICK: Colour = (142, 62, 52)
_BRICK_LIGHT: Colour = (172, 88, 72)
_RED: Colour = (214, 40, 57)
_OUTLINE: Colour = (38, 30, 34)
_WOOD: Colour = (186, 126, 62)
_WOOD_FRAME: Colour = (222, 168, 98)
_WOOD_DARK: Colour = (112, 68, 28)
_GREEN: Colour = (52, 148, 74)
_GREEN_FRAME: Colour = (122, 204, 120)
_GREEN_DARK: Colour = (16, 78, 40)
_WHITE: Colour = (255, 255, 255)
_BLUE: Colour = (36, 92, 196)
_SKIN: Colour = (246, 204, 160)
_CAP: Colour = (250, 194, 40)


class _Canvas:
    """Picture of one cell in the making, RGB (samples, samples, 3), with the positions of its samples.

    Positions are in 1/64 of a cell, multiplied by the number of samples to stay whole numbers.
    """

    def __init__(self, cell: int) -> None:
        self.side = cell * _SAMPLES
        self.x = (32 * (2 * np.arange(self.side, dtype=np.int64) + 1))[np.newaxis, :]
        self.y = self.x.T
        self.rgb = np.zeros((self.side, self.side, 3), np.uint8)

    def rectangle(self, left: int, top: int, right: int, bottom: int) -> Mask:
        side = self.side
        inside_x = (self.x >= left * side) & (self.x < right * side)
        return inside_x & (self.y >= top * side) & (self.y < bottom * side)

    def disc(self, centre_x: int, centre_y: int, radius: int) -> Mask:
        side = self.side
        return (self.x - centre_x * side) ** 2 + (self.y - centre_y * side) ** 2 <= (radius * side) ** 2

    def polygon(self, *points: tuple[int, int]) -> Mask:
        """Return the mask of a convex polygon; ``points`` are its corners, clockwise on the screen."""
        inside = np.ones((self.side, self.side), np.bool_)
        for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
            inside &= (x1 - x0) * (self.y - y0 * self.side) - (y1 - y0) * (self.x - x0 * self.side) >= 0
        return inside

    def paint(self, mask: Mask, colour: Colour) -> None:
        self.rgb[mask] = colour

    def pixels(self) -> NDArray[np.uint8]:
        """Average the samples of every pixel, rounding halves up."""
        cell = self.side // _SAMPLES
        blocks = self.rgb.reshape(cell, _SAMPLES, cell, _SAMPLES, 3).astype(np.int64).sum(axis=(1, 3))
        area = _SAMPLES * _SAMPLES
        return ((blocks + area // 2) // area).astype(np.uint8)


def _paint_floor(canvas: _Canvas) -> None:
    canvas.paint(canvas.rectangle(0, 0, 64, 64), _FLOOR_LINE)
    canvas.paint(canvas.rectangle(0, 0, 60, 60), _FLOOR)


def _paint_wall(canvas: _Canvas) -> None:
    canvas.paint(canvas.rectangle(0, 0, 64, 64), _MORTAR)
    for course in range(4):
        top = 16 * course
        # Bricks are half a cell long and every second course is shifted by a quarter cell: walls join seamlessly.
        shift = -16 if course % 2 else 0
        for left in (shift, shift + 32, shift + 64):
            canvas.paint(canvas.rectangle(left, top, left + 28, top + 12), _BRICK)
            canvas.paint(canvas.rectangle(left, top, left + 28, top + 4), _BRICK_LIGHT)


def _paint_ring(canvas: _Canvas) -> None:
    canvas.paint(canvas.disc(30, 30, 28) & ~canvas.disc(30, 30, 21), _RED)


def _paint_target(canvas: _Canvas) -> None:
    _paint_ring(canvas)
    canvas.paint(canvas.disc(30, 30, 9), _RED)


def _paint_crate(canvas: _Canvas, dark: Colour, frame: Colour, planks: Colour) -> None:
    canvas.paint(canvas.rectangle(0, 0, 60, 60), dark)
    canvas.paint(canvas.rectangle(4, 4, 56, 56), frame)
    canvas.paint(canvas.rectangle(12, 12, 48, 48), planks)


def _paint_box(canvas: _Canvas) -> None:
    _paint_crate(canvas, _WOOD_DARK, _WOOD_FRAME, _WOOD)
    inner = canvas.rectangle(12, 12, 48, 48)
    falling = canvas.polygon((12, 7), (53, 48), (48, 53), (7, 12))
    rising = canvas.polygon((7, 48), (48, 7), (53, 12), (12, 53))
    canvas.paint(inner & (falling | rising), _WOOD_DARK)


def _paint_box_on_target(canvas: _Canvas) -> None:
    _paint_crate(canvas, _GREEN_DARK, _GREEN_FRAME, _GREEN)
    canvas.paint(canvas.polygon((14, 30), (20, 24), (32, 36), (26, 42)), _WHITE)
    canvas.paint(canvas.polygon((20, 36), (42, 14), (48, 20), (26, 42)), _WHITE)


def _paint_player(canvas: _Canvas) -> None:
    # The outline is the same figure, 4/64 of a cell larger on every side.
    canvas.paint(canvas.disc(30, 18, 17) | canvas.polygon((20, 28), (40, 28), (48, 60), (12, 60)), _OUTLINE)
    canvas.paint(canvas.polygon((23, 32), (37, 32), (43, 56), (17, 56)), _BLUE)
    head = canvas.disc(30, 18, 13)
    canvas.paint(head, _SKIN)
    canvas.paint(head & canvas.rectangle(0, 0, 64, 16), _CAP)
    for left in (22, 34):
        canvas.paint(canvas.rectangle(left, 18, left + 4, 24), _OUTLINE)


@cache
def tiles(cell: int) -> NDArray[np.uint8]:
    """Return the pictures of all cells, indexed by cell code: shape (9, cell, cell, 3), read-only."""
    pictures = np.zeros((WALL + 1, cell, cell, 3), np.uint8)
    for code in CELL_CODES:
        canvas = _Canvas(cell)
        if code == WALL:
            _paint_wall(canvas)
        else:
            _paint_floor(canvas)
        if code == TARGET:
            _paint_target(canvas)
        elif code == BOX:
            _paint_box(canvas)
        elif code == BOX | TARGET:
            _paint_box_on_target(canvas)
        elif code == PLAYER:
            _paint_player(canvas)
        elif code == PLAYER | TARGET:
            _paint_ring(canvas)
            _paint_player(canvas)
        pictures[code] = canvas.pixels()
    pictures.flags.writeable = False
    return pictures
