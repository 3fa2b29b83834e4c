"""The hand of the embedded tabletop: which boxes it takes up, and what it can grasp.

It points down, its fingers open along y. Places are relative to the tool centre, the middle between the fingertips,
in millimetres. The numbers are those of a Panda hand, and tolerances were set so that the same primitives end alike in
ManiSkill's physics.
"""

from collections.abc import Iterable, Mapping

from ..tasks import Box, Point
from .boxes import above_each_other, half_side, shifted

OPEN = 40.0
"""Distance of each open finger's inner face from the middle."""
FINGER_THICK = 15.0
"""Along y."""
FINGER_HALF_WIDTH = 10.0
"""Along x."""
TIP_BELOW = 10.0
"""How far the fingers reach below the tool centre."""
PALM_ABOVE = 45.0
"""How far above the tool centre the fingers end and the body of the hand begins."""
PALM: Box = ((-32.0, -100.0, PALM_ABOVE), (32.0, 100.0, 110.0))

GRASP_X_SLACK = 5.0
"""A finger that overlaps a thing by less than this along x does not hold it."""
GRASP_Y_SLACK = {"cube": 0.0, "apple": 8.0}
"""How much further off the middle than the open fingers leave room for: a round thing slides in between them."""
GRASP_DEPTH = 5.0
"""Least overlap of fingers and thing along z."""

FIRM, TURNING = 8.7, 0.022
"""A cube whose middle is at most ``FIRM`` off the hand's along x is shoved straight by the finger that meets it first;
beyond, it turns meanwhile and ends farther off: by ``TURNING`` times the way beyond times the way it is shoved."""


def fingers(inner: float) -> tuple[Box, Box]:
    """Return the two fingers when each inner face is ``inner`` from the middle: the one at -y, the one at +y."""
    outer = inner + FINGER_THICK
    return (
        ((-FINGER_HALF_WIDTH, -outer, -TIP_BELOW), (FINGER_HALF_WIDTH, -inner, PALM_ABOVE)),
        ((-FINGER_HALF_WIDTH, inner, -TIP_BELOW), (FINGER_HALF_WIDTH, outer, PALM_ABOVE)),
    )


def between_fingers(thing: str, at: Point, hand: Point) -> bool:
    """Return whether the open hand grasps a thing at ``at`` when it closes at ``hand``."""
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
    """Return what the open hand grasps when it closes at ``hand``: the nearest thing between its fingers, or None.

    Of two that are equally near it is the lower one, which brings the other along.
    """
    near: list[tuple[float, float, Point, str]] = []
    for thing, at in things.items():
        if between_fingers(thing, at, hand):
            near.append((sum((a - b) * (a - b) for a, b in zip(at, hand, strict=True)), at[2], at, thing))
    return min(near)[-1] if near else None


def slip(thing: str, dx: float, dy: float) -> float:
    """Return how far along x a thing slips while closing fingers centre it, given how far it is off the hand."""
    beyond = max(0.0, abs(dx) - FIRM) if thing != "apple" else 0.0
    return TURNING * beyond * abs(dy) * (1.0 if dx > 0 else -1.0)


def lowest_reach(parts: Iterable[Box], solids: Iterable[Box], hand: Point) -> float:
    """Return how far down the tool centre comes above ``hand``'s x and y, no lower than its z.

    ``parts`` move down with the hand; the first of them that meets the table or one of ``solids`` stops it.
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
    """Return the part of a thing's box that stops a finger which comes down on it; a round thing rolls aside."""
    slack = GRASP_Y_SLACK["apple" if thing == "apple" else "cube"]
    (ax, ay, az), (bx, by, bz) = box
    return (ax, ay + slack, az), (bx, by - slack, bz)


__all__ = ["FINGER_HALF_WIDTH", "OPEN", "PALM", "between_fingers", "core", "fingers", "grasped", "lowest_reach", "slip"]
