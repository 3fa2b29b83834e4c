"""The embedded scorer: structure, colour and edges from the pixels alone, with OpenCV.

It needs no model and takes a few milliseconds, so that the whole pipeline runs anywhere. It is no substitute for a
perceptual score. Three decisions make it fit icons on white, where most pixels are background on either side:

- Pictures are compared at half and at quarter size, so that a shift by a pixel costs little and thin lines still count.
- Errors are summed, not averaged, and held against the area that the *target* shows (with a margin): the error of a
  missing part does not shrink because the rest of the page is white, and an error anywhere lowers the score.
- ``exp(-2 x)`` turns the relative error x into a score: 1 without error, strictly falling, never negative.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ...base import Frame
from .base import Score, Scorer, rounded

WEIGHTS = {"structure": 0.4, "colour": 0.3, "edges": 0.3}
"""Share of each part in the average: shape weighs more than colour, in two views that fail differently."""

_STEEPNESS = 2.0  # of the exponential: an error on half of what is shown leaves 0.37
_MARGIN = 8  # pixels of full size around what is drawn that count as shown
_LEAST_SHOWN = 0.02  # of the picture, so that a nearly empty target does not make every error total
_SIGMA, _WINDOW = 1.5, (11, 11)  # of the Gaussian window of structural similarity, as its authors chose
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_COLOUR_SPAN = 100.0  # distance in CIE Lab at which colours have nothing in common: that of black and white
_ALMOST = 1 - 1e-6  # the most that pictures which are not identical can score

Plane = NDArray[Any]
"""One channel, float32, shape (height, width)."""


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
    shown = _shown(target)
    one, other = _half(target), _half(canvas)
    structure, edges = [], []
    colour = _likeness(np.minimum(_colour_distance(one, other) / _COLOUR_SPAN, 1), shown)
    for scale in range(2):
        if scale:
            one, other = _half(one), _half(other)
        grey_one, grey_other = (cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) * 255 for picture in (one, other))
        structure.append(_likeness((1 - structural_similarity(grey_one, grey_other)) / 2, shown))
        edges.append(_edge_overlap(grey_one, grey_other))
    parts = {"structure": rounded(sum(structure) / 2), "colour": rounded(colour), "edges": rounded(sum(edges) / 2)}
    average = sum(WEIGHTS[name] * value for name, value in parts.items())
    return Score(rounded(min(average, _ALMOST)), parts)


def _half(picture: Plane) -> Plane:
    """Return a float picture (0 to 1) of half the size."""
    scaled = picture.astype(np.float32) / 255 if picture.dtype == np.uint8 else picture
    return cv2.pyrDown(scaled)


def _shown(target: Frame) -> float:
    """Return the share of the picture that is near something drawn on white."""
    drawn: Plane = np.asarray((target < 255).any(axis=2), np.float32)
    near = cv2.blur(drawn, (2 * _MARGIN + 1, 2 * _MARGIN + 1)) > 0
    return max(float(near.mean()), _LEAST_SHOWN)


def _likeness(error: Plane, shown: float) -> float:
    """Return a score from the errors of all pixels (0 to 1 each) and the share of them that the target shows."""
    return float(np.exp(-_STEEPNESS * float(error.mean(dtype=np.float64)) / shown))


def _colour_distance(one: Plane, other: Plane) -> Plane:
    difference = cv2.cvtColor(one, cv2.COLOR_RGB2LAB) - cv2.cvtColor(other, cv2.COLOR_RGB2LAB)
    return np.sqrt((difference * difference).sum(axis=2))


def _edge_overlap(one: Plane, other: Plane) -> float:
    """Return how much of the blurred gradient magnitudes of two pictures is common, 1 for pictures without edges."""
    gradients = [_blur(_gradient(plane)) for plane in (one, other)]
    union = float(np.maximum(*gradients).sum(dtype=np.float64))
    return float(np.minimum(*gradients).sum(dtype=np.float64)) / union if union else 1.0


def _gradient(plane: Plane) -> Plane:
    return cv2.magnitude(cv2.Sobel(plane, cv2.CV_32F, 1, 0), cv2.Sobel(plane, cv2.CV_32F, 0, 1))


def _blur(plane: Plane) -> Plane:
    return cv2.GaussianBlur(plane, _WINDOW, _SIGMA)
