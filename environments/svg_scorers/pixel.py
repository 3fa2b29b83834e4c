"""The embedded scorer: structure, colour and edges from the pixels alone, with OpenCV.

It needs no model and runs anywhere in a few milliseconds, so that the whole pipeline can be built and tested. It is no
substitute for a perceptual score: it punishes a shift that a person would not see, and icons on white share their
background. Both are softened. Structure and edges are compared at full and half size, and only where either picture
has something to show: over the *support*, all pixels near one that differs from white in the target or the canvas.
"""

from collections.abc import Sequence
from typing import ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ..base import Frame
from .base import Score, Scorer, rounded

WEIGHTS = {"structure": 0.4, "colour": 0.3, "edges": 0.3}
"""Share of each part in the average: shape weighs more than colour, in two views that fail differently."""

_SIGMA = 1.5  # of the Gaussian window of structural similarity, 11x11 as its authors chose
_WINDOW = (11, 11)
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_REACH = 9  # pixels around what is drawn that belong to the support
_COLOUR_SPAN = 100.0  # distance in CIE Lab at which colours have nothing in common: that of black and white
_ALMOST = 1 - 1e-6  # the most that pictures which are not identical can score

Plane = NDArray[np.float32]


class PixelScorer(Scorer):
    """Structural similarity, colour distance and edge overlap; see the module docstring and :data:`WEIGHTS`."""

    name: ClassVar[str] = "pixel"
    version: ClassVar[str] = "1"

    def score(self, target: Frame, canvases: Sequence[Frame]) -> list[Score]:
        """See :meth:`Scorer.score`."""
        return [_score(target, canvas) for canvas in canvases]


def structural_similarity(one: Plane, other: Plane) -> Plane:
    """Return the map of structural similarity (Wang et al. 2004) of two grey pictures from 0 to 255, same shape."""
    mean_one, mean_other = _blur(one), _blur(other)
    product = mean_one * mean_other
    squares = mean_one * mean_one + mean_other * mean_other
    covariance = _blur(one * other) - product
    variances = _blur(one * one + other * other) - squares
    return ((2 * product + _C1) * (2 * covariance + _C2)) / ((squares + _C1) * (variances + _C2))


def _score(target: Frame, canvas: Frame) -> Score:
    if np.array_equal(target, canvas):
        return Score(1.0, dict.fromkeys(WEIGHTS, 1.0))
    support = _support(target, canvas)
    grey = [cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32) for picture in (target, canvas)]
    structure, edges = [], []
    for size in range(2):
        if size:
            grey = [cv2.pyrDown(plane) for plane in grey]
            support = cv2.pyrDown(support)
        weight = float(support.sum())
        structure.append(float((structural_similarity(*grey) * support).sum()) / weight)
        edges.append(_edge_overlap(*grey))
    lab = [cv2.cvtColor(picture.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for picture in (target, canvas)]
    full = _support(target, canvas)
    distance = np.minimum(np.sqrt(((lab[0] - lab[1]) ** 2).sum(axis=2)) / _COLOUR_SPAN, 1)
    colour = 1 - float((distance * full).sum()) / float(full.sum())
    parts = {"structure": rounded(np.mean(structure)), "colour": rounded(colour), "edges": rounded(np.mean(edges))}
    average = sum(WEIGHTS[name] * value for name, value in parts.items())
    return Score(rounded(min(average, _ALMOST)), parts)


def _support(target: Frame, canvas: Frame) -> Plane:
    """Return 1 near what either picture shows on white, else 0; it is never empty for pictures that differ."""
    drawn = ((target < 255).any(axis=2) | (canvas < 255).any(axis=2)).astype(np.uint8)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * _REACH + 1, 2 * _REACH + 1))
    return cv2.dilate(drawn, kernel).astype(np.float32)


def _edge_overlap(one: Plane, other: Plane) -> float:
    """Return how much of the blurred gradient magnitudes of two pictures is common, 1 for pictures without edges."""
    gradients = [_blur(_gradient(plane)) for plane in (one, other)]
    union = float(np.maximum(*gradients).sum())
    return float(np.minimum(*gradients).sum()) / union if union else 1.0


def _gradient(plane: Plane) -> Plane:
    return cv2.magnitude(cv2.Sobel(plane, cv2.CV_32F, 1, 0), cv2.Sobel(plane, cv2.CV_32F, 0, 1))


def _blur(plane: Plane) -> Plane:
    return cv2.GaussianBlur(plane, _WINDOW, _SIGMA)
