"""Figure of a labelled failure for human readers: the collage with its pivot marked, next to label, proof and log.

Unlike collages and panels, a figure is never training data: the marked tile reveals the pivot, and the text uses
Pillow's font.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from .compose import collage
from .layout import Tiles

PAPER, INK, MUTED, ACCENT = (255, 255, 255), (32, 36, 44), (110, 118, 129), (200, 30, 45)
_MARGIN, _WIDTH = 24, 520
_TITLE, _TEXT, _LOG = 26, 17, 16

_font = cache(ImageFont.load_default)


def failure_figure(
    tiles: Tiles[NDArray[np.uint8]],
    title: str,
    facts: Sequence[tuple[str, str]],
    log: Sequence[str],
    pivot_step: int | None,
) -> NDArray[np.uint8]:
    """Draw the figure; RGB, shape (height, width, 3).

    Args:
        tiles: the tiles of the collage; the number of tiles of steps equals the length of ``log``.
        title: the heading of the text next to the collage.
        facts: names and values, one pair per line; long values wrap.
        log: compact action log, one line per step.
        pivot_step: the step to mark; None for an episode without a label.
    """
    # Text, font size, colour and height of each line.
    lines = [(words, _TITLE, INK, 38) for words in _wrapped(title, _TITLE, _WIDTH)]
    for name, value in facts:
        lines.append((name, _TEXT - 3, MUTED, 19))
        lines += [(words, _TEXT, INK, 23) for words in _wrapped(value, _TEXT, _WIDTH)]
        lines.append(("", _TEXT, INK, 7))
    lines.append(("action log", _TEXT - 3, MUTED, 21))
    for step, entry in enumerate(log):
        words, colour = (f"{entry} (pivot)", ACCENT) if step == pivot_step else (entry, INK)
        lines += [(part, _LOG, colour, 22) for part in _wrapped(words, _LOG, _WIDTH)]
    marked = None if pivot_step is None else tiles.places[pivot_step]
    picture = Image.fromarray(collage(tiles.frames, tiles.labels, highlight=marked))
    y, text_height = _MARGIN, sum(height for *_, height in lines)
    size = picture.width + _WIDTH + 3 * _MARGIN, max(picture.height, text_height) + 2 * _MARGIN
    page = Image.new("RGB", size, PAPER)
    page.paste(picture, (_MARGIN, _MARGIN))
    draw = ImageDraw.Draw(page)
    for words, font_size, colour, height in lines:
        draw.text((picture.width + 2 * _MARGIN, y), words, fill=colour, font=_font(font_size))
        y += height
    return np.asarray(page)


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
