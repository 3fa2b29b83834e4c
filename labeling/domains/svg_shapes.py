"""Differences between a target and a drawing: missing, moved, recoloured, resized or extra shapes.

A shape is a connected region of one colour, or of colours that change little from pixel to pixel (a gradient), on at
least 0.4 % of the picture. Both pictures are split into shapes; each shape of the target is compared with the
pixels of the drawing at its place, then with the drawing's shapes of its colour. Every number that a statement gives
is measured on the two rasters: shares of the picture, and centres in per cent from the left and from the top.
"""

import colorsys
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from ...environments.base import Frame
from ...environments.svg.sandbox.pool import rasterise
from ..statements import Statement, statement

SMOOTH = 8
"""Largest difference within nine neighbouring pixels of one shape, per channel of 0 to 255."""
NEAR = 24
"""Largest difference of one colour, per channel."""
LEAST = 0.004
"""Smallest share of the picture that counts as a shape."""
PAPER = 250
"""Smallest value of every channel of the white paper."""
GROWN, MOVED = 1.4, 0.04
"""Minimum ratio of two sizes, and minimum distance of two centres as a share of the picture's side, that count."""
_HUES = (
    (15, "red"),
    (42, "orange"),
    (68, "yellow"),
    (165, "green"),
    (195, "turquoise"),
    (255, "blue"),
    (295, "purple"),
)
_ROWS, _COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One shape of a picture."""

    mask: NDArray[np.bool_]
    colour: NDArray[np.float64]
    """Mean colour, RGB of 0 to 255."""
    share: float
    """Share of the picture."""
    centre: tuple[float, float]
    """Mean position from the left and from the top, 0 to 1."""

    def values(self) -> dict[str, str]:
        """Return the slots that name the shape in a statement."""
        red, green, blue = (round(float(each)) for each in self.colour)
        place = "/".join(f"{100 * each:.0f}%" for each in self.centre)
        return {"name": _name(red, green, blue), "colour": f"#{red:02x}{green:02x}{blue:02x}", "at": place}


@lru_cache(maxsize=1 << 10)
def differences(document: str, drawing: str, step: int) -> tuple[tuple[Statement, Statement], ...]:
    """Return what differs most between a target and its drawing: up to three facts, each with its remedy.

    Empty where a document is not drawn.

    Raises:
        SimulatorError: no worker returned a picture.
    """
    target, canvas = rasterise(document).pixels, rasterise(drawing).pixels
    if target is None or canvas is None:
        return ()
    ranked = sorted(_differences(target, canvas, step), key=lambda each: -each[0])
    cells = np.abs(target.astype(int) - canvas).sum(axis=2)
    thirds = [[cells[rows][:, columns].sum() for columns in _thirds(canvas)] for rows in _thirds(canvas)]
    row, column = divmod(int(np.argmax(thirds)), 3)
    part = {"step": step, "row": _ROWS[row], "column": _COLUMNS[column]}
    pairs = [pair for _, pair in ranked] or [(statement("part_differs", **part), statement("redraw", **part))]
    return tuple(pairs[:3])


def _thirds(picture: Frame) -> list[slice]:
    edges = [len(picture) * each // 3 for each in range(4)]
    return [slice(*pair) for pair in pairwise(edges)]


def _differences(target: Frame, canvas: Frame, step: int) -> list[tuple[float, tuple[Statement, Statement]]]:
    """Return facts and remedies with the share of the picture that each concerns."""
    pairs: list[tuple[float, tuple[Statement, Statement]]] = []
    paper = (target >= PAPER).all(axis=2) == (canvas >= PAPER).all(axis=2)
    same = (np.abs(target.astype(int) - canvas).max(axis=2) <= NEAR) & paper
    targets, shapes, explained = _shapes(target), _shapes(canvas), np.zeros(same.shape, bool)

    def add(kind: str, weight: float, **values: str) -> None:
        pairs.append((weight, (statement(kind, step=step, **values), statement(f"fix_{kind}", step=step, **values))))

    for shape in targets:
        others = np.any([each.mask for each in targets if each is not shape and _near(each, shape)], axis=0)
        alike = [each for each in shapes if _near(each, shape) and (each.mask & others).sum() < each.mask.sum() / 2]
        match = max(
            alike, key=lambda each: ((each.mask & shape.mask).sum(), -abs(each.share - shape.share)), default=None
        )
        parts = [each for each in alike if each is match or (each.mask & shape.mask).sum() > each.mask.sum() / 2]
        match = _joined(parts) if len(parts) > 1 else match
        names, kept = shape.values() | {"share": _share(shape)}, same[shape.mask].mean()
        there = max(shapes, key=lambda each: (each.mask & shape.mask).sum(), default=shape)
        covered = (there.mask & shape.mask).sum() / shape.mask.sum()
        if match is None and kept <= 0.1 and covered >= 0.6 and there.share < 2 * shape.share:
            other = there.values()
            add("recoloured", shape.share, **names, other=other["colour"], otherwise=other["name"])
            explained |= there.mask
        elif match is None and kept <= 0.1:
            add("missing", shape.share, **names)
        elif match is not None:
            explained |= match.mask
            ratio = max(match.share / shape.share, shape.share / match.share)
            shared = (match.mask & shape.mask).sum() / min(match.mask.sum(), shape.mask.sum())
            if (
                ratio >= GROWN
                and shared >= 0.5
                and not (match.mask & others).any()
                and (kept if match.share < shape.share else same[match.mask].mean()) < 0.8
            ):
                add("resized", abs(match.share - shape.share), **names, drawn=_share(match))
            elif ratio < GROWN and np.hypot(*np.subtract(match.centre, shape.centre)) >= MOVED:
                add("moved", (1 - kept) * shape.share, **names, there=match.values()["at"])
    for shape in shapes:
        is_new = same[shape.mask].mean() <= 0.1 and not any(_near(each, shape) for each in targets)
        if is_new and not (shape.mask & explained).any():
            add("extra", shape.share, **shape.values(), share=_share(shape))
    return pairs


def _joined(parts: list[Shape]) -> Shape:
    """Merge pieces of one shape that other shapes partly cover."""
    mask = np.any([each.mask for each in parts], axis=0)
    return Shape(mask, parts[0].colour, float(mask.mean()), _centre(mask))


def _centre(mask: NDArray[np.bool_]) -> tuple[float, float]:
    rows, columns = mask.nonzero()
    return (columns.mean() + 0.5) / mask.shape[1], (rows.mean() + 0.5) / mask.shape[0]


def _share(shape: Shape) -> str:
    percent = 100 * shape.share
    return f"{percent:.1f}%" if percent < 9.95 else f"{percent:.0f}%"


def _is_paper(colour: NDArray[np.float64]) -> bool:
    return bool((colour >= PAPER).all())


def _near(one: Shape, other: Shape) -> bool:
    return bool(np.abs(one.colour - other.colour).max() <= NEAR)


def _shapes(picture: Frame) -> list[Shape]:
    """Return the shapes of a picture but its white paper."""
    around = np.ones((3, 3), np.uint8)
    inner = (cv2.dilate(picture, around) - cv2.erode(picture, around)).max(axis=2) <= SMOOTH  # not on an edge
    count, labels = cv2.connectedComponents(inner.astype(np.uint8), connectivity=4)
    shapes: list[Shape] = []
    for label in range(1, count):
        inside = labels == label
        mask = cv2.dilate(inside.astype(np.uint8), around) > 0  # with its edge
        if mask.mean() < LEAST or _is_paper(colour := picture[inside].mean(axis=0)):
            continue
        shapes.append(Shape(mask, colour, float(mask.mean()), _centre(mask)))
    return shapes


def _name(red: int, green: int, blue: int) -> str:
    """Return the English word of a colour."""
    hue, light, _ = colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)
    if max(red, green, blue) - min(red, green, blue) < 20:
        return "black" if light < 0.2 else "grey" if light < 0.9 else "white"
    if 15 <= hue * 360 < 42 and light < 0.4:
        return "brown"
    word = next((name for most, name in _HUES if hue * 360 < most), "pink" if hue * 360 < 345 else "red")
    return f"pale-{word}" if light > 0.85 else f"dark-{word}" if light < 0.25 else word
