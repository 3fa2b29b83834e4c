"""Embedded scorer: similarity of structure, colour and edges, computed from pixels with OpenCV.

It needs no model and takes a few milliseconds, so that the pipeline runs on every machine. It does not replace a
perceptual score. Five decisions adapt it to icons on white, where most pixels are background in both pictures:

- Pictures are compared at half and at quarter size, so that a shift by a pixel costs little and thin lines still count.
- Errors are summed, not averaged, and divided by the non-white area of the *target* (with a margin): the error of a
  missing part does not shrink because the rest of the page is white, and an error anywhere lowers the score.
- ``exp(-2 x)`` maps the relative error x to a component of the score: 1 without error, strictly decreasing, positive.
- Trivial drawings score nothing: the components' mean is rescaled so that a blank canvas has 0, the best single
  rectangle 0.08, and the target 1. A wrong drawing is therefore no better than none.
- ``1 - (1 - x^2)^2.5`` maps that value to the score. It is flat at both ends, so that a copy that is off by a pixel
  stays above 0.9, and a rectangle better than the best one found stays below 0.2.

The components are reported as measured, before the last two steps.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ...base import Frame
from .base import Score, Scorer, rounded

WEIGHTS = {"structure": 0.4, "colour": 0.3, "edges": 0.3}
"""Weights of the components in their mean: shape has two complementary components and outweighs colour."""

_STEEPNESS = 2.0  # factor in the exponential: an error on half of the shown area leaves 0.37
_MARGIN = 8  # margin around non-white pixels that counts as shown, pixels at full size
_LEAST_SHOWN = 0.02  # minimum shown area as a fraction of the picture, for almost empty targets
_SIGMA, _WINDOW = 1.5, (11, 11)  # Gaussian window of structural similarity, as in the original paper
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_COLOUR_SPAN = 100.0  # distance in CIE Lab that counts as total error: that of black and white
_ALMOST = 1 - 1e-6  # maximum score of pictures that are not identical
_GRID = 32  # number of grid lines for the edges of the rectangle
_MOST_OF_A_RECTANGLE = 0.8  # above this, the target itself is a rectangle, and drawing one is a valid solution
_WORTH_OF_A_RECTANGLE = 0.08
_TARGETS = 16  # size of the cache, 2 MB each; rollouts of a task are scored in succession

Plane = NDArray[Any]
"""One channel, float32, shape (height, width)."""


class PixelScorer(Scorer):
    """Structural similarity, colour distance and edge overlap; see the module docstring and :data:`WEIGHTS`."""

    name: ClassVar[str] = "pixel"
    version: ClassVar[str] = "2"

    def __init__(self) -> None:
        """Create the scorer with an empty cache of targets."""
        self._targets: OrderedDict[bytes, _Target] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, target: Frame, canvases: Sequence[Frame]) -> list[Score]:
        """Return the scores; see :meth:`Scorer.score`."""
        seen = self._target(target)
        return [_score(seen, canvas) for canvas in canvases]

    def _target(self, picture: Frame) -> "_Target":
        key = hashlib.blake2b(picture.tobytes()).digest()
        with self._lock:
            target = self._targets.pop(key, None)
        if target is None:
            target = _Target.of(picture)
        with self._lock:
            self._targets[key] = target
            while len(self._targets) > _TARGETS:
                self._targets.popitem(last=False)
        return target


@dataclass(frozen=True)
class _View:
    """Features of a grey picture (0 to 255) at one scale."""

    grey: Plane
    mean: Plane
    variance: Plane
    edges: Plane

    @classmethod
    def of(cls, grey: Plane) -> "_View":
        """Compute the features of a picture."""
        mean = _blur(grey)
        return cls(grey, mean, _blur(grey * grey) - mean * mean, _blur(_gradient(grey)))


@dataclass(frozen=True)
class _Look:
    """Features of a picture: its colours at half size, its views at half and at quarter size."""

    colours: Plane
    """CIE Lab, shape (height, width, 3)."""
    views: tuple[_View, _View]

    @classmethod
    def of(cls, picture: Frame) -> "_Look":
        """Compute the features of a picture of full size."""
        half = cv2.pyrDown(picture.astype(np.float32) / 255)
        large, small = (cv2.cvtColor(scaled, cv2.COLOR_RGB2GRAY) * 255 for scaled in (half, cv2.pyrDown(half)))
        return cls(cv2.cvtColor(half, cv2.COLOR_RGB2LAB), (_View.of(large), _View.of(small)))


@dataclass(frozen=True)
class _Target:
    """A target, with everything that does not depend on the canvas."""

    picture: Frame
    look: _Look
    shown: float
    """Fraction of the picture that is not white or near a pixel that is not white."""
    blank: float
    """Mean of the components for a blank canvas."""
    rectangle: float
    """Mean of the components for the best single rectangle, at least that of a blank canvas."""

    @classmethod
    def of(cls, picture: Frame) -> "_Target":
        """Score the blank canvas and the best-fitting rectangle."""
        target = cls(picture, _Look.of(picture), _shown(picture), 0.0, 0.0)
        blank = _mean(_parts(target, np.full_like(picture, 255)))
        best = max((_mean(_parts(target, canvas)) for canvas in _best_rectangles(picture)), default=blank)
        return replace(target, blank=blank, rectangle=max(blank, best) if best <= _MOST_OF_A_RECTANGLE else blank)


def _score(target: _Target, canvas: Frame) -> Score:
    if np.array_equal(target.picture, canvas):
        return Score(1.0, dict.fromkeys(WEIGHTS, 1.0))
    parts = _parts(target, canvas)
    worth = _stretched(_mean(parts), target)
    return Score(rounded(min(1 - (1 - worth * worth) ** 2.5, _ALMOST)), parts)


def _stretched(mean: float, target: _Target) -> float:
    """Return a mean of components, rescaled by blank canvas, best rectangle and target."""
    if mean <= target.blank:
        return 0.0
    if mean <= target.rectangle:
        return _WORTH_OF_A_RECTANGLE * (mean - target.blank) / (target.rectangle - target.blank)
    return 1 - (1 - _WORTH_OF_A_RECTANGLE) * (1 - mean) / (1 - target.rectangle)


def _parts(target: _Target, canvas: Frame) -> dict[str, float]:
    """Return the components of the similarity of two pictures, each 0 to 1."""
    look, shown = _Look.of(canvas), target.shown
    difference = target.look.colours - look.colours
    distance = np.sqrt((difference * difference).sum(axis=2)) / _COLOUR_SPAN
    pairs = list(zip(target.look.views, look.views, strict=True))
    structure = [_likeness((1 - _similarity(one, other)) / 2, shown) for one, other in pairs]
    edges = [_overlap(one.edges, other.edges) for one, other in pairs]
    return {
        "structure": rounded(sum(structure) / 2),
        "colour": rounded(_likeness(np.minimum(distance, 1), shown)),
        "edges": rounded(sum(edges) / 2),
    }


def _mean(parts: dict[str, float]) -> float:
    return sum(WEIGHTS[name] * value for name, value in parts.items())


def _similarity(one: _View, other: _View) -> Plane:
    """Return the map of structural similarity (Wang et al. 2004) of two views of equal shape."""
    product = one.mean * other.mean
    covariance = _blur(one.grey * other.grey) - product
    likeness = (2 * product + _C1) * (2 * covariance + _C2)
    return likeness / ((one.mean**2 + other.mean**2 + _C1) * (one.variance + other.variance + _C2))


def _best_rectangles(picture: Frame) -> Iterator[Frame]:
    """Return two canvases with the rectangle that reduces the squared error of a blank canvas most.

    A rectangle over n pixels that differ from white by x reduces it by ``|sum x|^2 / n`` if it has their mean colour;
    all rectangles on a grid of :data:`_GRID` lines are compared. The second canvas uses their median colour.
    """
    height, width = picture.shape[:2]
    small = cv2.resize(picture, (_GRID, _GRID), interpolation=cv2.INTER_AREA).astype(np.float64) - 255
    sums = np.zeros((_GRID + 1, _GRID + 1, 3))
    sums[1:, 1:] = small.cumsum(axis=0).cumsum(axis=1)
    first, last = np.triu_indices(_GRID + 1, 1)
    bands = sums[last] - sums[first]
    boxes = bands[:, last] - bands[:, first]
    gains = (boxes * boxes).sum(axis=2) / np.outer(last - first, last - first)
    if not gains.max():
        return
    rows, columns = np.unravel_index(gains.argmax(), gains.shape)
    place = (
        slice(first[rows] * height // _GRID, last[rows] * height // _GRID),
        slice(first[columns] * width // _GRID, last[columns] * width // _GRID),
    )
    pixels = picture[place].reshape(-1, 3)
    for colour in (pixels.mean(axis=0).round(), np.median(pixels, axis=0)):
        canvas = np.full_like(picture, 255)
        canvas[place] = colour
        yield canvas


def _shown(target: Frame) -> float:
    """Return the fraction of the picture that is not white or near a pixel that is not white."""
    drawn: Plane = np.asarray((target < 255).any(axis=2), np.float32)
    near = cv2.blur(drawn, (2 * _MARGIN + 1, 2 * _MARGIN + 1)) > 0
    return max(float(near.mean()), _LEAST_SHOWN)


def _likeness(error: Plane, shown: float) -> float:
    """Return a component from the errors of all pixels (0 to 1 each) and the target's shown fraction."""
    return float(np.exp(-_STEEPNESS * float(error.mean(dtype=np.float64)) / shown))


def _overlap(one: Plane, other: Plane) -> float:
    """Return the overlap of the edges of two pictures, 1 if neither has edges."""
    union = float(np.maximum(one, other).sum(dtype=np.float64))
    return float(np.minimum(one, other).sum(dtype=np.float64)) / union if union else 1.0


def _gradient(plane: Plane) -> Plane:
    return cv2.magnitude(cv2.Sobel(plane, cv2.CV_32F, 1, 0), cv2.Sobel(plane, cv2.CV_32F, 0, 1))


def _blur(plane: Plane) -> Plane:
    return cv2.GaussianBlur(plane, _WINDOW, _SIGMA)
