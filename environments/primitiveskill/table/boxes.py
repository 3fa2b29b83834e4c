"""Axis-aligned boxes of the embedded tabletop: overlap, support, and the time at which a moving box hits another.

Cubes never rotate here and the apple is represented by its bounding box, so closed formulas suffice. Lengths are
millimetres. Boxes whose faces touch do not overlap; an overlap is deeper than ``TOUCH``.
"""

from collections.abc import Iterable

from ..tasks import APPLE, CUBE, Box, Point

TOUCH = 0.01
"""Depth up to which boxes touch without overlapping, millimetres; states are rounded to a tenth of it."""


def half_side(thing: str) -> float:
    """Return half the size of an object along every axis."""
    return (APPLE if thing == "apple" else CUBE) / 2


def box_around(thing: str, at: Point) -> Box:
    """Return the box of an object whose centre is ``at``."""
    half = half_side(thing)
    return (at[0] - half, at[1] - half, at[2] - half), (at[0] + half, at[1] + half, at[2] + half)


def shifted(box: Box, by: Point) -> Box:
    """Return the box moved by a vector."""
    (ax, ay, az), (bx, by_, bz) = box
    return (ax + by[0], ay + by[1], az + by[2]), (bx + by[0], by_ + by[1], bz + by[2])


def above_each_other(one: Box, other: Box) -> bool:
    """Return whether the boxes overlap seen from above."""
    return all(one[0][axis] + TOUCH < other[1][axis] and other[0][axis] + TOUCH < one[1][axis] for axis in (0, 1))


def overlap(one: Box, other: Box) -> bool:
    """Return whether the boxes overlap."""
    return above_each_other(one, other) and one[0][2] + TOUCH < other[1][2] and other[0][2] + TOUCH < one[1][2]


def highest_under(boxes: Iterable[Box], column: Box) -> tuple[float, list[Box]]:
    """Return the height at which a column that moves down comes to rest, and the boxes that support it.

    Boxes that extend above the underside of the column are ignored. An empty list means the table.
    """
    top, supports = 0.0, []
    for box in boxes:
        height = box[1][2]
        if height > column[0][2] + TOUCH or not above_each_other(box, column):
            continue
        if height > top + TOUCH:
            top, supports = height, [box]
        elif height > top - TOUCH and height > TOUCH:
            supports.append(box)
    return top, supports


def collision(box: Box, velocity: Point, other: Box) -> tuple[float, int] | None:
    """Return when a box that moves with ``velocity`` from time 0 first hits a box at rest, and along which axis.

    The time is 0 if they already touch or overlap and approach each other; the result is None if they never collide.
    """
    enters, leaves, met_on = 0.0, float("inf"), -1
    earliest = float("-inf")
    for axis in range(3):
        speed = velocity[axis]
        gap, past = other[0][axis] - box[1][axis], other[1][axis] - box[0][axis]
        if speed == 0:
            if gap > -TOUCH or past < TOUCH:
                return None
            continue
        if speed < 0:
            speed, gap, past = -speed, -past, -gap
        if gap / speed > earliest:
            earliest, met_on = gap / speed, axis
        leaves = min(leaves, (past - TOUCH) / speed)
    enters = max(earliest, 0.0)
    return (enters, met_on) if met_on >= 0 and enters < leaves else None
