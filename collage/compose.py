"""Composition of frames and label strips into one picture: the Analyzer's collage and the Teacher's panel.

Frames are copied pixel by pixel, never scaled or painted over, so that every tile can be cut out and compared with its
frame. Strips are rendered once per text and size. A picture with ``highlight`` must not enter a dataset, because it
reveals the pivot.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..core.errors import ImageError
from ..core.images import MAX_PIXELS, Frame, check_frame
from .font import GREYS, draw_text
from .layout import Layout, collage_layout, make_layout, step_label

Colour = tuple[int, int, int]

PAGE = 250
"""Grey level of the space between cells and of unused cells."""

STRIP: Colour = (226, 229, 234)
INK: Colour = (20, 22, 28)
ACCENT: Colour = (200, 40, 30)
ACCENT_INK: Colour = (255, 255, 255)


def collage(frames: Sequence[Frame], labels: Sequence[str] | None = None, *, highlight: int | None = None) -> Frame:
    """Return all frames in one grid, row by row, each under its label.

    Pass the frames *before* each action, without the terminal frame. All cells have the largest height and width of the
    frames; smaller frames are centred, unscaled.

    Args:
        frames: n RGB frames.
        labels: one text per frame, of a-z, 0-9, space and hyphen; ``step 0``, ``step 1``, ... by default.
        highlight: index of a frame whose strip gets an accent colour; only for human readers, because it reveals the
            pivot.

    Raises:
        ImageError: there are no frames, one is not an RGB frame, or the picture would be larger than ``MAX_PIXELS``.
        ValueError: labels do not match the frames or cannot be drawn, or ``highlight`` is not one of the frames.
    """
    tiles, texts = [check_frame(frame) for frame in frames], _texts(len(frames), labels)
    if highlight is not None and not 0 <= highlight < len(tiles):
        raise ValueError(f"highlight {highlight} is outside the {len(tiles)} frames")
    largest = max(tile.shape[0] for tile in tiles), max(tile.shape[1] for tile in tiles), 3
    return _compose(collage_layout(len(tiles), largest, texts), tiles, texts, highlight)


def panel(frames: Sequence[Frame], t: int, labels: Sequence[str] | None = None) -> Frame:
    """Return the frames [t-1, t, t+1] side by side under their labels.

    A missing frame, before the first or after the last one, is a black tile with an empty strip.

    Args:
        frames: the frames of the collage, in order, without the terminal frame.
        t: the middle step.
        labels: one text per frame, as in :func:`collage`.

    Raises:
        ImageError: there are no frames, one is not an RGB frame, or the picture would be larger than ``MAX_PIXELS``.
        ValueError: ``t`` is not one of the frames, or labels do not match the frames or cannot be drawn.
    """
    if len(frames) and not 0 <= t < len(frames):
        raise ValueError(f"panel step {t} is outside the {len(frames)} frames")
    texts = _texts(len(frames), labels)
    present = {step: check_frame(frames[step]) for step in (t - 1, t, t + 1) if 0 <= step < len(frames)}
    shape = max(tile.shape[0] for tile in present.values()), max(tile.shape[1] for tile in present.values()), 3
    black = np.zeros(shape, np.uint8)
    tiles = [present.get(step, black) for step in (t - 1, t, t + 1)]
    strips = [texts[step] if step in present else "" for step in (t - 1, t, t + 1)]
    return _compose(make_layout(3, 1, shape, tuple(strips)), tiles, strips, None)


@lru_cache(maxsize=2048)
def label_strip(text: str, layout: Layout, accent: bool = False) -> Frame:
    """Return the read-only strip for ``text``, shape (strip_height, cell_width, 3); without text it is blank.

    Raises:
        ValueError: a character of ``text`` has no glyph.
    """
    paper, ink = (ACCENT, ACCENT_INK) if accent else (STRIP, INK)
    coverage = np.zeros((layout.strip_height, layout.cell_width), np.int32)
    drawn = draw_text(text, layout.font_size)
    top, left = layout.padding, layout.inset
    coverage[top : top + drawn.shape[0], left : left + drawn.shape[1]] = drawn
    cover = coverage[..., None]
    strip = (np.array(paper) * (GREYS - cover) + np.array(ink) * cover + GREYS // 2) // GREYS
    strip = strip.astype(np.uint8)
    strip.flags.writeable = False
    return strip


def _compose(layout: Layout, tiles: Sequence[Frame], labels: Sequence[str], highlight: int | None) -> Frame:
    if layout.height * layout.width > MAX_PIXELS:
        raise ImageError(
            f"a picture of {len(tiles)} frames would have {layout.width}x{layout.height} pixels, "
            f"expected at most {MAX_PIXELS} in all; use smaller frames"
        )
    picture = np.empty((layout.height, layout.width, 3), np.uint8)
    picture.fill(PAGE)
    for k, (tile, label) in enumerate(zip(tiles, labels, strict=True)):
        strip, slot = layout.strip(k), layout.tile(k)
        cell = label_strip(label, layout, k == highlight)
        picture[strip.y : strip.y + strip.height, strip.x : strip.x + strip.width] = cell
        (height, width), y, x = tile.shape[:2], slot.y, slot.x
        y, x = y + (slot.height - height) // 2, x + (slot.width - width) // 2  # a smaller tile is centred
        picture[y : y + height, x : x + width] = tile
    return picture


def _texts(n: int, labels: Sequence[str] | None) -> list[str]:
    if not n:
        raise ImageError("no frames to compose: found 0, expected at least the frame before the first action")
    if labels is not None and len(labels) != n:
        raise ValueError(f"found {len(labels)} labels for {n} frames; pass one per frame")
    return [step_label(t) for t in range(n)] if labels is None else list(labels)
