"""Solids of the tabletop's picture, as rows of the kernel's array: boxes, balls, and cylinders between two points.

Plain arithmetic in a fixed order gives equal rows for equal scenes on every machine. Lengths are millimetres.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ...raycast import rgb
from ..tasks import Point
from .kernel import BOX, COLUMNS, CYLINDER, ELLIPSOID

Solid = tuple[float, ...]
"""A row of the kernel's array, see its ``COLUMNS``."""


def box(centre: Point, half: Point, colour: str, gloss: float = 0.0) -> Solid:
    """Return an axis-aligned box with its half sides; ``colour`` is #rrggbb, ``gloss`` the strength of highlights."""
    a, b, c = half
    return (BOX, *centre, a, 0.0, 0.0, 0.0, b, 0.0, 0.0, 0.0, c, *rgb(colour), gloss)


def ball(centre: Point, radius: float, colour: str, gloss: float = 0.0) -> Solid:
    """Return a ball."""
    return (ELLIPSOID, *box(centre, (radius, radius, radius), colour, gloss)[1:])


def cylinder(start: Point, end: Point, radius: float, colour: str, gloss: float = 0.0) -> Solid:
    """Return a cylinder around the line from ``start`` to ``end``, which must differ."""
    x, y, z = ((b - a) / 2 for a, b in zip(start, end, strict=True))
    centre = tuple((a + b) / 2 for a, b in zip(start, end, strict=True))
    half = math.sqrt(x * x + y * y + z * z)
    ux, uy, uz = x / half, y / half, z / half
    # Two further perpendicular axes: one is horizontal, or along x if the cylinder is vertical.
    level = math.sqrt(ux * ux + uy * uy)
    ax, ay = (uy / level, -ux / level) if level > 1e-9 else (1.0, 0.0)
    bx, by, bz = -uz * ay, uz * ax, ux * ay - uy * ax
    first = (ax * radius, ay * radius, 0.0)
    second = (bx * radius, by * radius, bz * radius)
    return (CYLINDER, *centre, *first, *second, x, y, z, *rgb(colour), gloss)


def array_of(solids: list[Solid]) -> NDArray[np.float64]:
    """Return the kernel's array, float64 (n, COLUMNS)."""
    return np.array(solids).reshape(-1, COLUMNS)
