"""Robot in the tabletop's picture: white links, grey joints, and a hand that points down.

It has the proportions of ManiSkill's Panda, but not its meshes. The tool centre determines the pose: the wrist is
straight above it, and the elbow is the intersection of two circles above the line from shoulder to wrist.
"""

import math

from ..table.hand import FINGER_HALF_WIDTH, FINGER_THICK, OPEN, PALM, PALM_ABOVE, TIP_BELOW
from ..tasks import Point
from .solids import Solid, ball, box, cylinder

BASE: Point = (-615.0, 0.0, 0.0)
"""Position of the robot's base."""
FINGERS_OPEN = 2 * OPEN
"""Distance between the fingers along y when the hand is empty."""
_SHOULDER, _UPPER, _FORE = 333.0, 327.0, 393.0  # height of the shoulder; lengths of upper arm and forearm
_WRIST, _OFFSET = 210.0, 88.0  # height of the wrist above the tool centre, and its distance behind it
_HAND = PALM[1][2]  # height of the hand's upper face above the tool centre
_SHELL, _JOINT, _CAP, _HAND_COLOUR, _FINGER = "#eef0f2", "#b9bfc6", "#59616b", "#d5d9de", "#3a3f46"
_GLOSS = 0.25


def arm(tool: Point) -> list[Solid]:
    """Return the arm and its hand without fingers, for a tool centre."""
    dx, dy = tool[0] - BASE[0], tool[1] - BASE[1]
    reach = math.sqrt(dx * dx + dy * dy)
    ahead, aside = (dx / reach, dy / reach), (-dy / reach, dx / reach)

    def at(along: float, height: float, sideways: float = 0.0) -> Point:
        """Return the point at distance ``along`` from the base axis and ``sideways`` from the plane of the arm."""
        return (
            BASE[0] + along * ahead[0] + sideways * aside[0],
            BASE[1] + along * ahead[1] + sideways * aside[1],
            height,
        )

    wrist_at, wrist_height = reach - _OFFSET, tool[2] + _WRIST
    elbow_at, elbow_height = _elbow(wrist_at, wrist_height - _SHOULDER)
    elbow_height += _SHOULDER
    solids = [
        cylinder(at(0, 0), at(0, 30), 95.0, _JOINT, _GLOSS),
        cylinder(at(0, 30), at(0, _SHOULDER - 20), 62.0, _SHELL, _GLOSS),
        cylinder(at(0, 150), at(0, 162), 64.0, _JOINT),
        *_joint(at(0, _SHOULDER, -72), at(0, _SHOULDER, 72), 64.0),
        cylinder(at(0, _SHOULDER), at(elbow_at, elbow_height), 52.0, _SHELL, _GLOSS),
        *_joint(at(elbow_at, elbow_height, -66), at(elbow_at, elbow_height, 66), 58.0),
        cylinder(at(elbow_at, elbow_height), at(wrist_at, wrist_height), 46.0, _SHELL, _GLOSS),
        *_joint(at(wrist_at, wrist_height, -56), at(wrist_at, wrist_height, 56), 50.0),
        cylinder(at(wrist_at, wrist_height), at(reach, wrist_height), 42.0, _SHELL, _GLOSS),
        ball(at(reach, wrist_height), 46.0, _SHELL, _GLOSS),
        cylinder(at(reach, wrist_height), at(reach, tool[2] + _HAND + 10), 42.0, _SHELL, _GLOSS),
        cylinder(at(reach, tool[2] + _HAND + 10), at(reach, tool[2] + _HAND), 34.0, _CAP),
    ]
    middle = (_HAND + PALM_ABOVE) / 2
    hand = box((tool[0], tool[1], tool[2] + middle), (PALM[1][0], PALM[1][1], _HAND - middle), _HAND_COLOUR)
    return [*solids, hand]


def fingers(tool: Point, opening: float) -> list[Solid]:
    """Return the two fingers, ``opening`` millimetres apart along y."""
    x, y, z = tool
    middle, half = (PALM_ABOVE - TIP_BELOW) / 2, (PALM_ABOVE + TIP_BELOW) / 2
    aside = (opening + FINGER_THICK) / 2
    return [
        box((x, y + side * aside, z + middle), (FINGER_HALF_WIDTH, FINGER_THICK / 2, half), _FINGER) for side in (-1, 1)
    ]


def _joint(start: Point, end: Point, radius: float) -> list[Solid]:
    """Return a joint across the arm, with a darker cap at both ends."""
    first = _between(start, end, 0.1)
    last = _between(start, end, 0.9)
    return [cylinder(first, last, radius, _SHELL, _GLOSS), cylinder(start, end, 0.8 * radius, _CAP, _GLOSS)]


def _between(start: Point, end: Point, share: float) -> Point:
    x, y, z = (a + share * (b - a) for a, b in zip(start, end, strict=True))
    return x, y, z


def _elbow(along: float, height: float) -> tuple[float, float]:
    """Return the upper intersection of the circles around (0, 0) and (along, height); on the line if they miss."""
    square = along * along + height * height
    distance = math.sqrt(square)
    foot = (square + _UPPER * _UPPER - _FORE * _FORE) / (2 * distance)
    above = math.sqrt(max(0.0, _UPPER * _UPPER - foot * foot))
    return (foot * along - above * height) / distance, (foot * height + above * along) / distance
