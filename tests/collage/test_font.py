"""The stroke font draws the same pixels on every machine."""

from hashlib import sha256

import pytest
from pivot.collage.font import CHARACTERS, GREYS, draw_text, text_width


def test_the_pixels_of_every_character_are_pinned() -> None:
    """Collages are verified bit by bit, so another pixel is another version of them."""
    digest, sizes = sha256(), (14, 15, 23, 36, 60, 90)
    for size in sizes:
        glyphs = [draw_text(character, size) for character in CHARACTERS]
        assert len({ink.tobytes() for ink in glyphs}) == len(CHARACTERS)
        for character, ink in zip(CHARACTERS, glyphs, strict=True):
            assert ink.shape == (size, text_width(character, size)) and ink.max() <= GREYS
            digest.update(ink.tobytes())
    assert digest.hexdigest() == "95f2272b8ad1815649cb54568133eae7b55462b33e8463f042e95bf1ea6e7b21"


def test_unknown_characters_are_named() -> None:
    with pytest.raises(ValueError, match="no glyph for 'A'"):
        draw_text("A", 14)
