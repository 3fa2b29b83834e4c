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

# Pen positions, x to the right and y down: the baseline is y = 170; digits and ascenders reach up to 0, small letters
# to 50, descenders down to 216. "M x y" lifts the pen, "L x y" draws a line, "Q cx cy x y" a quadratic curve.
_LEFT_BOWL = "M 85 110 Q 85 50 42 50 Q 0 50 0 110 Q 0 170 42 170 Q 85 170 85 110"
_RIGHT_BOWL = "M 0 110 Q 0 50 43 50 Q 85 50 85 110 Q 85 170 43 170 Q 0 170 0 110"
_ARCH = "M 0 50 L 0 170 M 0 100 Q 0 50 42 50 Q 80 50 80 95 L 80 170"
_STROKES = {
    "0": "M 0 55 Q 0 0 50 0 Q 100 0 100 55 L 100 115 Q 100 170 50 170 Q 0 170 0 115 L 0 55",
    "1": "M 12 38 L 60 0 L 60 170",
    "2": "M 3 45 Q 6 0 50 0 Q 97 0 97 44 Q 97 68 70 98 L 2 170 L 100 170",
    "3": "M 3 36 Q 12 0 50 0 Q 95 0 95 41 Q 95 80 48 80 L 36 80 M 48 80 Q 100 80 100 125"
    " Q 100 170 50 170 Q 8 170 0 130",
    "4": "M 74 170 L 74 0 L 0 122 L 102 122",
    "5": "M 92 0 L 18 0 L 11 78 Q 26 64 50 64 Q 100 64 100 117 Q 100 170 50 170 Q 8 170 0 134",
    "6": "M 91 24 Q 80 0 53 0 Q 0 0 0 85 L 0 116 Q 0 170 50 170 Q 100 170 100 117 Q 100 65 50 65 Q 0 65 0 116",
    "7": "M 0 0 L 100 0 L 36 170",
    "8": "M 50 80 Q 7 80 7 40 Q 7 0 50 0 Q 93 0 93 40 Q 93 80 50 80 Q 100 80 100 125 Q 100 170 50 170"
    " Q 0 170 0 125 Q 0 80 50 80",
    ".": "M 0 167 L 0 170",
    "9": "M 9 146 Q 20 170 47 170 Q 100 170 100 85 L 100 54 Q 100 0 50 0 Q 0 0 0 53 Q 0 105 50 105 Q 100 105 100 54",
    "a": f"M 85 50 L 85 170 {_LEFT_BOWL}",
    "b": f"M 0 0 L 0 170 {_RIGHT_BOWL}",
    "c": "M 80 74 Q 70 50 43 50 Q 0 50 0 110 Q 0 170 43 170 Q 70 170 80 146",
    "d": f"M 85 0 L 85 170 {_LEFT_BOWL}",
    "e": "M 0 108 L 86 108 Q 86 50 43 50 Q 0 50 0 110 Q 0 170 46 170 Q 70 170 82 148",
    "f": "M 60 1 Q 22 -4 22 38 L 22 170 M 0 52 L 54 52",
    "g": f"M 85 50 L 85 172 Q 85 216 43 216 Q 16 216 6 202 {_LEFT_BOWL}",
    "h": f"M 0 0 L 0 60 {_ARCH}",
    "i": "M 0 50 L 0 170 M 0 6 L 0 8",
    "j": "M 18 50 L 18 182 Q 18 216 0 215 M 18 6 L 18 8",
    "k": "M 0 0 L 0 170 M 74 50 L 0 118 M 30 92 L 80 170",
    "l": "M 0 0 L 0 138 Q 0 170 26 169",
    "m": "M 0 50 L 0 170 M 0 95 Q 0 50 34 50 Q 64 50 64 90 L 64 170 M 64 95 Q 64 50 98 50 Q 128 50 128 90 L 128 170",
    "n": _ARCH,
    "o": _RIGHT_BOWL,
    "p": f"M 0 50 L 0 216 {_RIGHT_BOWL}",
    "q": f"M 85 50 L 85 216 {_LEFT_BOWL}",
    "r": "M 0 50 L 0 170 M 0 108 Q 0 52 48 53",
    "s": "M 74 74 Q 66 50 38 50 Q 2 50 2 79 Q 2 104 38 109 Q 77 115 77 141 Q 77 170 38 170 Q 6 170 0 145",
    "t": "M 24 10 L 24 136 Q 24 174 60 168 M 0 52 L 56 52",
    "u": "M 0 50 L 0 122 Q 0 170 40 170 Q 80 170 80 120 M 80 50 L 80 170",
    "v": "M 0 50 L 43 170 L 86 50",
    "w": "M 0 50 L 32 170 L 65 60 L 98 170 L 130 50",
    "x": "M 0 50 L 80 170 M 80 50 L 0 170",
    "y": "M 0 50 L 44 166 M 86 50 L 44 166 Q 28 216 4 214",
    "z": "M 2 50 L 78 50 L 0 170 L 82 170",
    "-": "M 0 108 L 56 108",
    " ": "",
}
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
    if character not in _STROKES:
        raise ValueError(f"no glyph for {character!r}; labels may contain: {CHARACTERS}")
    return tuple(_flatten(_STROKES[character]))


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


def _flatten(strokes: str) -> list[Segment]:
    """Return straight segments (x0, y0, x1, y1) in 1 / _FLAT font units."""
    segments: list[Segment] = []
    pen_x = pen_y = 0
    for command in strokes.replace("M", ";M").replace("L", ";L").replace("Q", ";Q").split(";")[1:]:
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
    return segments
