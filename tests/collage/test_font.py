"""The stroke font: glyphs look like the characters they stand for, nothing is clipped, geometry is exact."""

from fractions import Fraction
from string import ascii_lowercase

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from pivot.collage.font import (
    _FLAT,
    _PEN,
    _SPACING,
    _TOP,
    CHARACTERS,
    EM,
    GREYS,
    _near_segment,
    _outline,
    draw_text,
    text_width,
)


def shape_of(ink: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ink, cut to its bounding box, at a common size, with zero mean and unit length."""
    rows, cols = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    box = ink[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1].astype(np.float32)
    # Thin glyphs keep their width: an l must not be blown up to a block.
    width = max(box.shape[1], box.shape[0] // 2)
    padded = np.zeros((box.shape[0], width), np.float32)
    left = (width - box.shape[1]) // 2
    padded[:, left : left + box.shape[1]] = box
    small = cv2.GaussianBlur(cv2.resize(padded, (24, 32), interpolation=cv2.INTER_AREA), (0, 0), 1.5)
    vector = small.ravel().astype(np.float64) - small.mean()
    return vector / np.linalg.norm(vector)


def printed(character: str) -> NDArray[np.float64]:
    """Return the ink of a character in Pillow's own typeface."""
    picture = Image.new("L", (200, 200))
    ImageDraw.Draw(picture).text((40, 40), character, fill=255, font=ImageFont.load_default(100))
    return np.array(picture) / 255.0


@pytest.mark.parametrize("size", [14, 60])
def test_digits_look_like_digits_of_another_typeface(size: int) -> None:
    digits = "0123456789"
    reference = {digit: shape_of(printed(digit)) for digit in digits}
    for digit in digits:
        ours = shape_of(draw_text(digit, size) / GREYS)
        assert max(digits, key=lambda other: float(ours @ reference[other])) == digit


def test_letters_look_like_letters_of_another_typeface() -> None:
    # Left out: letters whose shape differs between sans faces (two-storey a and g, bent l, t, j; u beside n).
    letters = "bcdehkmopqrsvwxyz"
    reference = {letter: shape_of(printed(letter)) for letter in letters}
    for letter in letters:
        ours = shape_of(draw_text(letter, 60) / GREYS)
        assert max(letters, key=lambda other: float(ours @ reference[other])) == letter


def test_nothing_is_clipped() -> None:
    for character in CHARACTERS:
        advance = text_width(character, EM)  # at this size a pixel is a font unit
        for x0, y0, x1, y1 in _outline(character):
            for x, y in ((x0, y0), (x1, y1)):
                assert y / _FLAT + _TOP - _PEN >= 0
                assert y / _FLAT + _TOP + _PEN <= EM
                assert x / _FLAT + _SPACING / 2 >= 0
                assert x / _FLAT + _SPACING / 2 + 2 * _PEN <= advance


@pytest.mark.parametrize("size", [14, 15, 23, 31, 36, 90])
def test_coverage_has_the_promised_shape_and_range(size: int) -> None:
    for character in CHARACTERS:
        ink = draw_text(character, size)
        assert ink.shape == (size, text_width(character, size))
        assert ink.max() <= GREYS
        assert ink.any() == (character != " ")


@pytest.mark.parametrize("size", [14, 23, 40])
def test_digits_are_equally_wide_and_about_four_fifths_of_the_em(size: int) -> None:
    assert len({text_width(digit, size) for digit in "0123456789"}) == 1
    for digit in "0123456789":
        rows = np.flatnonzero(draw_text(digit, size).any(axis=1))
        assert abs((rows[-1] - rows[0] + 1) - 0.8 * size) <= 2


def test_every_character_has_its_own_shape() -> None:
    assert set("0123456789 -." + ascii_lowercase) == set(CHARACTERS)
    drawn = {draw_text(character, 14).tobytes() for character in CHARACTERS}
    assert len(drawn) == len(CHARACTERS)


coordinates = st.integers(-300, 300)


@given(coordinates, coordinates, coordinates, coordinates, st.integers(0, 200))
def test_pen_distance_is_exact(x: int, y: int, to_x: int, to_y: int, radius: int) -> None:
    length = to_x * to_x + to_y * to_y
    share = Fraction(max(0, min(length, x * to_x + y * to_y)), length) if length else Fraction(0)
    distance = (x - share * to_x) ** 2 + (y - share * to_y) ** 2
    inside = _near_segment(np.array([[x]]), np.array([[y]]), to_x, to_y, radius)
    assert bool(inside[0, 0]) == (distance <= radius * radius)


def test_unknown_characters_are_named() -> None:
    with pytest.raises(ValueError, match="no glyph for 'A'"):
        draw_text("A", 14)
