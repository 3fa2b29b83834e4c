"""Figure of a labelled failure for human readers: the collage with its pivot marked, next to label, proof and log.

Unlike collages and panels, a figure is never training data: the marked tile reveals the pivot, and the text uses
Pillow's font.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from .compose import collage
from .tiles import Tiles

PAPER, INK, MUTED, ACCENT = (255, 255, 255), (32, 36, 44), (110, 118, 129), (200, 30, 45)
_MARGIN, _WIDTH = 24, 520
_TITLE, _TEXT, _LOG = 26, 17, 16


@dataclass(frozen=True, slots=True)
class FigureText:
    """Text of the figure."""

    title: str
    facts: Sequence[tuple[str, str]]
    """Names and values, one pair per line; long values wrap."""
    log: Sequence[str]
    """Compact action log, one line per step."""


def failure_figure(tiles: Tiles[NDArray[np.uint8]], text: FigureText, pivot_step: int | None) -> NDArray[np.uint8]:
    """Draw the figure; RGB, shape (height, width, 3).

    Args:
        tiles: the tiles of the collage; the number of tiles of steps equals the length of ``text.log``.
        text: the text next to the collage.
        pivot_step: the step to mark; None for an episode without a label.
    """
    marked = None if pivot_step is None else tiles.places[pivot_step]
    picture = Image.fromarray(collage(tiles.frames, tiles.labels, highlight=marked))
    lines = _lines(text, pivot_step)
    height = max(picture.height, sum(line.height for line in lines)) + 2 * _MARGIN
    page = Image.new("RGB", (picture.width + _WIDTH + 3 * _MARGIN, height), PAPER)
    page.paste(picture, (_MARGIN, _MARGIN))
    draw = ImageDraw.Draw(page)
    x, y = picture.width + 2 * _MARGIN, _MARGIN
    for line in lines:
        line.draw(draw, x, y)
        y += line.height
    return np.asarray(page)


@dataclass(frozen=True, slots=True)
class _Line:
    words: str
    size: int
    colour: tuple[int, int, int]
    height: int
    indent: int = 0

    def draw(self, draw: ImageDraw.ImageDraw, x: int, y: int) -> None:
        draw.text((x + self.indent, y), self.words, fill=self.colour, font=_font(self.size))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _lines(text: FigureText, pivot_step: int | None) -> list[_Line]:
    lines = [_Line(words, _TITLE, INK, 38) for words in _wrapped(text.title, _TITLE, _WIDTH)]
    for name, value in text.facts:
        lines.append(_Line(name, _TEXT - 3, MUTED, 19))
        lines += [_Line(words, _TEXT, INK, 23) for words in _wrapped(value, _TEXT, _WIDTH)]
        lines.append(_Line("", _TEXT, INK, 7))
    lines.append(_Line("action log", _TEXT - 3, MUTED, 21))
    for step, entry in enumerate(text.log):
        marked = step == pivot_step
        words = f"{entry} (pivot)" if marked else entry
        colour = ACCENT if marked else INK
        lines += [_Line(part, _LOG, colour, 22) for part in _wrapped(words, _LOG, _WIDTH)]
    return lines


def _wrapped(words: str, size: int, width: int) -> list[str]:
    """Break text into lines of at most ``width`` pixels, if necessary within a long word."""
    font = _font(size)
    lines = [""]
    for word in words.split():
        candidate = f"{lines[-1]} {word}".strip()
        if font.getlength(candidate) <= width:
            lines[-1] = candidate
            continue
        lines.append(word)
        while font.getlength(lines[-1]) > width:
            fit = max(n for n in range(1, len(lines[-1])) if font.getlength(lines[-1][:n]) <= width or n == 1)
            lines[-1:] = [lines[-1][:fit], lines[-1][fit:]]
    return [line for line in lines if line] or [""]
