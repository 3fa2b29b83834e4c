"""Stroke font that is rendered with integers only, so that labels have identical pixels on every machine.

The output of font libraries varies between versions and platforms, but collages are verified bit by bit. A glyph is a
list of strokes (lines and quadratic curves) drawn with a round pen. A sample is ink if its exact distance to a stroke
is at most the pen's radius; 16 samples per pixel give the grey levels. All digits have the same width.
"""

from functools import lru_cache
from itertools import pairwise
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from ..core.data import load_data

EM = 250
"""Font units from the top of an ascender to the bottom of a descender; the font size in pixels is this height."""

GREYS = 16
"""Coverage of a pixel that is completely ink."""

_PEN = 15  # radius of the pen, font units
_TOP = 17  # from the top of the em to y = 0, the pen's centre at the top of an ascender
_SPACING = 22  # space between the ink of adjacent glyphs
_SAMPLES = 4  # per pixel side
_PIECES = 8  # straight segments per curve
_FLAT = _PIECES * _PIECES  # flattened points are exact in units of 1 / _FLAT

_STROKES: dict[str, str] = load_data(__file__, "font.yaml")
_SPACE_WIDTH, _DIGIT_WIDTH = 30, 100

CHARACTERS = "".join(sorted(_STROKES))
"""All characters that a label may contain."""

Segment = tuple[int, int, int, int]


def text_width(text: str, size: int) -> int:
    """Return the width in pixels of :func:`draw_text` at a font size of ``size`` pixels.

    Raises:
        ValueError: a character has no glyph.
    """
    return sum(_glyph_width(character, size) for character in text)


def draw_text(text: str, size: int) -> NDArray[np.uint8]:
    """Return ink coverage 0..``GREYS``, shape (size, width).

    Raises:
        ValueError: a character has no glyph.
    """
    glyphs = [_glyph(character, size) for character in text]
    return np.concatenate(glyphs, axis=1) if glyphs else np.zeros((size, 0), np.uint8)


@lru_cache(maxsize=64)
def _outline(character: str) -> tuple[Segment, ...]:
    """Return straight segments (x0, y0, x1, y1) in 1 / _FLAT font units."""
    if character not in _STROKES:
        raise ValueError(f"no glyph for {character!r}; labels may contain: {CHARACTERS}")
    segments: list[Segment] = []
    pen_x = pen_y = 0
    for command in _STROKES[character].replace("M", ";M").replace("L", ";L").replace("Q", ";Q").split(";")[1:]:
        kind, *numbers = command.split()
        values = [int(number) for number in numbers]
        end_x, end_y = values[-2:]
        if kind == "L":
            segments.append((pen_x * _FLAT, pen_y * _FLAT, end_x * _FLAT, end_y * _FLAT))
        elif kind == "Q":
            control_x, control_y = values[:2]
            points = [
                (
                    (_PIECES - k) ** 2 * pen_x + 2 * k * (_PIECES - k) * control_x + k * k * end_x,
                    (_PIECES - k) ** 2 * pen_y + 2 * k * (_PIECES - k) * control_y + k * k * end_y,
                )
                for k in range(_PIECES + 1)
            ]
            segments.extend((*a, *b) for a, b in pairwise(points))
        pen_x, pen_y = end_x, end_y
    return tuple(segments)


@lru_cache(maxsize=1024)
def _glyph_width(character: str, size: int) -> int:
    right = max((max(x0, x1) // _FLAT for x0, _, x1, _ in _outline(character)), default=_SPACE_WIDTH)
    advance = (_DIGIT_WIDTH if character.isdigit() else right) + 2 * _PEN + _SPACING
    return (advance * size + EM // 2) // EM


@lru_cache(maxsize=1024)
def _glyph(character: str, size: int) -> NDArray[np.uint8]:
    segments = _outline(character)
    width = _glyph_width(character, size)
    # Lengths in units of 1 / (2 * _SAMPLES * size * _FLAT) font units: samples and stroke points are whole numbers.
    pen = _PEN * 2 * _SAMPLES * size * _FLAT
    x = _FLAT * (EM * (2 * np.arange(width * _SAMPLES, dtype=np.int64) + 1) - (2 * _PEN + _SPACING) * _SAMPLES * size)
    y = _FLAT * (EM * (2 * np.arange(size * _SAMPLES, dtype=np.int64) + 1) - _TOP * 2 * _SAMPLES * size)
    ink = np.zeros((len(y), len(x)), np.bool_)
    for segment in segments:
        x0, y0, x1, y1 = (2 * _SAMPLES * size * value for value in segment)
        ink |= _near_segment(x[None, :] - x0, y[:, None] - y0, x1 - x0, y1 - y0, pen)
    coverage = ink.reshape(size, _SAMPLES, width, _SAMPLES).sum(axis=(1, 3)).astype(np.uint8)
    coverage.flags.writeable = False
    return coverage


def _near_segment(x: NDArray[np.int64], y: NDArray[np.int64], to_x: int, to_y: int, radius: int) -> NDArray[np.bool_]:
    """Return which points (x, y) are within ``radius`` of the segment from the origin to (to_x, to_y); exact."""
    length_squared = to_x * to_x + to_y * to_y
    near_ends = (x * x + y * y <= radius * radius) | ((x - to_x) ** 2 + (y - to_y) ** 2 <= radius * radius)
    along = x * to_x + y * to_y
    across = np.abs(x * to_y - y * to_x)
    # Tests across <= radius * length with the square root rounded down, which is exact for a whole left side.
    return near_ends | ((along > 0) & (along < length_squared) & (across <= isqrt(radius * radius * length_squared)))
