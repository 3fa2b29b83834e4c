"""Hand of the embedded tabletop: its boxes, and the objects that it can grasp.

It points down and its fingers open along y. Positions are relative to the tool centre, which is the midpoint of the
fingertips, in millimetres. The dimensions are those of a Panda hand; tolerances were chosen so that the same primitives
have the same results as in ManiSkill's physics.
"""

from collections.abc import Iterable, Mapping

from ..tasks import Box, Point
from .boxes import above_each_other, half_side, shifted

OPEN = 40.0
"""Distance of each open finger's inner face from the midpoint."""
FINGER_THICK = 15.0
"""Thickness of a finger along y."""
FINGER_HALF_WIDTH = 10.0
"""Half width of a finger along x."""
TIP_BELOW = 10.0
"""Length of the fingers below the tool centre."""
PALM_ABOVE = 45.0
"""Height above the tool centre at which the fingers end and the palm begins."""
PALM: Box = ((-32.0, -100.0, PALM_ABOVE), (32.0, 100.0, 110.0))

GRASP_X_SLACK = 5.0
"""Minimum overlap of finger and object along x for a grasp."""
GRASP_Y_SLACK = {"cube": 0.0, "apple": 8.0}
"""Extra distance off the midpoint along y at which an object is still grasped: a round one slides in between."""
GRASP_DEPTH = 5.0
"""Minimum overlap of fingers and object along z for a grasp."""

FIRM, TURNING = 8.7, 0.022
"""The finger that hits a cube first shoves it straight if the cube's centre is at most ``FIRM`` from the hand's along
x. Otherwise the cube rotates and slips along x by ``TURNING`` * (offset - ``FIRM``) * (shoved distance)."""


def fingers(inner: float) -> tuple[Box, Box]:
    """Return the two fingers, at -y and at +y, whose inner faces are ``inner`` from the midpoint."""
    outer = inner + FINGER_THICK
    return (
        ((-FINGER_HALF_WIDTH, -outer, -TIP_BELOW), (FINGER_HALF_WIDTH, -inner, PALM_ABOVE)),
        ((-FINGER_HALF_WIDTH, inner, -TIP_BELOW), (FINGER_HALF_WIDTH, outer, PALM_ABOVE)),
    )


def between_fingers(thing: str, at: Point, hand: Point) -> bool:
    """Return whether the open hand grasps an object at ``at`` when it closes at ``hand``."""
    half = half_side(thing)
    dx, dy, dz = at[0] - hand[0], at[1] - hand[1], at[2] - hand[2]
    room = OPEN - half + GRASP_Y_SLACK["apple" if thing == "apple" else "cube"]
    return (
        abs(dx) <= half + FINGER_HALF_WIDTH - GRASP_X_SLACK
        and abs(dy) <= room
        and dz + half >= GRASP_DEPTH - TIP_BELOW
        and dz - half <= PALM_ABOVE - GRASP_DEPTH
    )


def grasped(things: Mapping[str, Point], hand: Point) -> str | None:
    """Return the object that the open hand grasps when it closes at ``hand``: the nearest one between its fingers.

    If two are equally near, it is the lower one, which carries the other. None if nothing is between the fingers.
    """
    near: list[tuple[float, float, Point, str]] = []
    for thing, at in things.items():
        if between_fingers(thing, at, hand):
            near.append((sum((a - b) * (a - b) for a, b in zip(at, hand, strict=True)), at[2], at, thing))
    return min(near)[-1] if near else None


def slip(thing: str, dx: float, dy: float) -> float:
    """Return how far an object slips along x while closing fingers centre it, given its offset from the hand."""
    beyond = max(0.0, abs(dx) - FIRM) if thing != "apple" else 0.0
    return TURNING * beyond * abs(dy) * (1.0 if dx > 0 else -1.0)


def lowest_reach(parts: Iterable[Box], solids: Iterable[Box], hand: Point) -> float:
    """Return the lowest height that the tool centre reaches at ``hand``'s x and y, not below ``hand``'s z.

    ``parts`` move down with the hand; the first of them that touches the table or one of ``solids`` stops it.
    """
    lowest, solids = hand[2], list(solids)
    for part in parts:
        under = part[0][2]
        lowest = max(lowest, -under)
        column = shifted(part, hand)
        for solid in solids:
            if above_each_other(column, solid):
                lowest = max(lowest, solid[1][2] - under)
    return lowest


def core(thing: str, box: Box) -> Box:
    """Return the part of an object's box that stops a finger from above; a round object rolls aside."""
    slack = GRASP_Y_SLACK["apple" if thing == "apple" else "cube"]
    (ax, ay, az), (bx, by, bz) = box
    return (ax, ay + slack, az), (bx, by - slack, bz)
