"""Geometry of collages and panels: a grid of cells, each a label strip with its tile directly below.

All numbers derive from the largest tile and the labels, so a viewer, a test or a verifier can cut the tiles out again.
A cell is widened if a label is wider than its tile; text is never clipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Generic, Literal, NamedTuple, TypeVar

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
    """Geometry of one picture, all lengths in pixels; cells are numbered row by row."""

    cols: int
    rows: int
    tile_width: int
    tile_height: int
    cell_width: int
    font_size: int
    padding: int
    """Vertical padding of the text in its strip."""
    inset: int
    """Horizontal padding of the text in its strip."""
    gap: int
    """Space around every cell."""
    strip_height: int
    """Height of the label strip above every tile."""
    width: int
    """Width of the picture."""
    height: int
    """Height of the picture."""

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


@lru_cache(maxsize=1024)
def make_layout(cols: int, rows: int, tile_shape: tuple[int, ...], labels: tuple[str, ...]) -> Layout:
    """Return the layout for tiles of ``tile_shape`` (height, width, ...) under ``labels``.

    Raises:
        ValueError: a label contains a character without a glyph.
    """
    height, width = tile_shape[:2]
    font_size = max(MIN_FONT, (height * FONT_PERCENT + 50) // 100)
    padding, inset, gap = max(1, (font_size + 8) // 16), font_size // 6, max(4, (height + 24) // 48)
    widest = max((text_width(label, font_size) for label in labels if label), default=0)
    cell_width, strip_height = max(width, widest + 2 * inset), font_size + 2 * padding
    page = gap + cols * (cell_width + gap), gap + rows * (strip_height + height + gap)
    return Layout(cols, rows, width, height, cell_width, font_size, padding, inset, gap, strip_height, *page)


def collage_layout(n: int, tile_shape: tuple[int, ...], labels: Sequence[str] | None = None) -> Layout:
    """Return the layout of :func:`~pivot.collage.collage` for ``n`` frames of ``tile_shape``.

    Raises:
        ValueError: ``n`` is not positive, or a label contains a character without a glyph.
    """
    cols, rows = grid_shape(n)
    return make_layout(cols, rows, tile_shape, tuple(map(step_label, range(n)) if labels is None else labels))


def tile_box(n: int, k: int, tile_shape: tuple[int, ...], labels: Sequence[str] | None = None) -> Box:
    """Return the rectangle of tile ``k`` of a collage of ``n`` frames of ``tile_shape``.

    Raises:
        ValueError: ``k`` is not a tile of that collage.
    """
    if not 0 <= k < n:
        raise ValueError(f"tile {k} is outside a collage of {n} tiles")
    return collage_layout(n, tile_shape, labels).tile(k)


TileKind = Literal["observations", "outcomes"]
TARGET_LABEL = "target"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tiles(Generic[T]):
    """Tiles of one episode: frames, or ids of frames."""

    frames: tuple[T, ...]
    """Tiles of the collage, in order."""
    labels: tuple[str, ...]
    places: tuple[int, ...]
    """Index of the tile of each step; other tiles are a target, or inside of a turn."""

    @property
    def steps(self) -> tuple[T, ...]:
        """Tiles of the steps, from which the panel is taken."""
        return tuple(self.frames[place] for place in self.places)


def episode_tiles(kind: TileKind, frames: Sequence[T], inside: Sequence[Sequence[T]] = ()) -> Tiles[T]:
    """Choose the tiles of an episode of T steps.

    Args:
        kind: ``profile.tiles`` of the environment.
        frames: T + 1 frames or frame ids: the frame before each action, then the terminal frame.
        inside: for each step, the frames between the actions of its turn; empty where every turn has one action.
    """
    steps = range(len(frames) - 1)
    labels = tuple(step_label(t) for t in steps)
    if kind == "outcomes":
        return Tiles(tuple(frames), (TARGET_LABEL, *labels), tuple(t + 1 for t in steps))
    if not any(inside):
        return Tiles(tuple(frames[:-1]), labels, tuple(steps))
    tiles: list[tuple[T, str]] = []
    places: list[int] = []
    for t, between in zip(steps, inside, strict=True):
        places.append(len(tiles))
        tiles.append((frames[t], labels[t]))
        tiles += [(frame, f"{labels[t]}.{made}") for made, frame in enumerate(between, 1)]
    return Tiles(tuple(frame for frame, _ in tiles), tuple(label for _, label in tiles), tuple(places))
