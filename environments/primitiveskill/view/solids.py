"""Solids of the tabletop's picture, as rows of the kernel's array: boxes, balls, and cylinders between two points.

Plain arithmetic in a fixed order, so that equal scenes give equal rows on every machine. Lengths are millimetres.
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
    """Return a box along the axes, given its half sides; a colour is #rrggbb, gloss the strength of highlights."""
    a, b, c = half
    return (BOX, *centre, a, 0.0, 0.0, 0.0, b, 0.0, 0.0, 0.0, c, *rgb(colour), gloss)


def ball(centre: Point, radius: float, colour: str, gloss: float = 0.0) -> Solid:
    """Return a ball."""
    return (ELLIPSOID, *box(centre, (radius, radius, radius), colour, gloss)[1:])


def cylinder(start: Point, end: Point, radius: float, colour: str, gloss: float = 0.0) -> Solid:
    """Return a cylinder around the line from ``start`` to ``end``, which differ."""
    x, y, z = ((b - a) / 2 for a, b in zip(start, end, strict=True))
    centre = tuple((a + b) / 2 for a, b in zip(start, end, strict=True))
    half = math.sqrt(x * x + y * y + z * z)
    ux, uy, uz = x / half, y / half, z / half
    # Two more axes at right angles: one lies level, or along x where the cylinder itself is upright.
    level = math.sqrt(ux * ux + uy * uy)
    ax, ay = (uy / level, -ux / level) if level > 1e-9 else (1.0, 0.0)
    bx, by, bz = -uz * ay, uz * ax, ux * ay - uy * ax
    first = (ax * radius, ay * radius, 0.0)
    second = (bx * radius, by * radius, bz * radius)
    return (CYLINDER, *centre, *first, *second, x, y, z, *rgb(colour), gloss)


def array_of(solids: list[Solid]) -> NDArray[np.float64]:
    """Return the kernel's array, float64 (n, COLUMNS)."""
    return np.array(solids).reshape(-1, COLUMNS)


__all__ = ["Solid", "array_of", "ball", "box", "cylinder"]
