"""Geometry of collages and panels: a grid of cells, each a label strip with its tile directly below.

All numbers derive from the largest tile and the labels, so a viewer, a test or a verifier can cut the tiles out again.
A cell is widened if a label is wider than its tile; text is never clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from .font import text_width

FONT_PERCENT = 12
"""Font size as a fraction of the tile's height."""

MIN_FONT = 14
"""Minimum font size, pixels: digits are then 11 pixels tall and still readable at half size."""


class Box(NamedTuple):
    """Rectangle in pixels from the top left corner of the picture."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Geometry of one picture; cells are numbered row by row."""

    cols: int
    rows: int
    tile_width: int
    tile_height: int
    cell_width: int
    font_size: int

    @property
    def padding(self) -> int:
        """Vertical padding of the text in its strip, pixels."""
        return max(1, (self.font_size + 8) // 16)

    @property
    def inset(self) -> int:
        """Horizontal padding of the text in its strip, pixels."""
        return self.font_size // 6

    @property
    def gap(self) -> int:
        """Space around every cell, pixels."""
        return max(4, (self.tile_height + 24) // 48)

    @property
    def strip_height(self) -> int:
        """Height of the label strip above every tile, pixels."""
        return self.font_size + 2 * self.padding

    @property
    def width(self) -> int:
        """Width of the picture, pixels."""
        return self.gap + self.cols * (self.cell_width + self.gap)

    @property
    def height(self) -> int:
        """Height of the picture, pixels."""
        return self.gap + self.rows * (self.strip_height + self.tile_height + self.gap)

    def strip(self, k: int) -> Box:
        """Return the label strip of cell ``k``."""
        row, col = divmod(k, self.cols)
        return Box(
            self.gap + col * (self.cell_width + self.gap),
            self.gap + row * (self.strip_height + self.tile_height + self.gap),
            self.cell_width,
            self.strip_height,
        )

    def tile(self, k: int) -> Box:
        """Return the rectangle of the tile of cell ``k``: below its strip, horizontally centred."""
        strip = self.strip(k)
        return Box(
            strip.x + (self.cell_width - self.tile_width) // 2,
            strip.y + self.strip_height,
            self.tile_width,
            self.tile_height,
        )


def step_label(t: int) -> str:
    """Return the text above the tile of step ``t`` (0-based)."""
    return f"step {t}"


def grid_shape(n: int) -> tuple[int, int]:
    """Return (cols, rows) of a collage of ``n`` tiles: cols = ceil(sqrt(n)), rows = ceil(n / cols).

    Raises:
        ValueError: ``n`` is not positive.
    """
    if n < 1:
        raise ValueError(f"a grid needs at least one tile, found {n}")
    cols = isqrt(n - 1) + 1
    return cols, -(-n // cols)


def make_layout(cols: int, rows: int, tile_shape: tuple[int, ...], labels: Sequence[str]) -> Layout:
    """Return the layout for tiles of ``tile_shape`` (height, width, ...) under ``labels``.

    Raises:
        ValueError: a label contains a character without a glyph.
    """
    return _make_layout(cols, rows, tile_shape[0], tile_shape[1], tuple(labels))


@lru_cache(maxsize=1024)
def _make_layout(cols: int, rows: int, height: int, width: int, labels: tuple[str, ...]) -> Layout:
    font_size = max(MIN_FONT, (height * FONT_PERCENT + 50) // 100)
    bare = Layout(cols, rows, width, height, width, font_size)
    widest = max((text_width(label, font_size) for label in labels if label), default=0)
    return Layout(cols, rows, width, height, max(width, widest + 2 * bare.inset), font_size)


def collage_layout(n: int, tile_shape: tuple[int, ...], labels: Sequence[str] | None = None) -> Layout:
    """Return the layout of :func:`~pivot.collage.collage` for ``n`` frames of ``tile_shape``.

    Raises:
        ValueError: ``n`` is not positive, or a label contains a character without a glyph.
    """
    cols, rows = grid_shape(n)
    return make_layout(cols, rows, tile_shape, [step_label(t) for t in range(n)] if labels is None else labels)


def tile_box(n: int, k: int, tile_shape: tuple[int, ...], labels: Sequence[str] | None = None) -> Box:
    """Return the rectangle of tile ``k`` of a collage of ``n`` frames of ``tile_shape``.

    Raises:
        ValueError: ``k`` is not a tile of that collage.
    """
    if not 0 <= k < n:
        raise ValueError(f"tile {k} is outside a collage of {n} tiles")
    return collage_layout(n, tile_shape, labels).tile(k)
