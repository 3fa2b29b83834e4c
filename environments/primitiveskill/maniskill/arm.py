"""The Panda's joint angles for a hand that points straight down, in closed form.

Two of the seven joints stay at zero (the third and the fifth), so the arm moves in the vertical plane through its base
axis and the tool centre: shoulder and elbow are a triangle, the wrist turns the hand down, the last joint turns the
fingers. The angles are a function of the point alone, whatever the arm did before. Points that the arm cannot reach
are drawn towards the shoulder, or away from it, onto the boundary of what it can.

Lengths are metres in the world frame, angles radians. The constants are those of the robot's public description.
"""

import math

BASE = -0.615
"""x of the base; it stands at y = z = 0 and looks along +x."""
SHOULDER = 0.333
UPPER, FOREARM, ELBOW = 0.316, 0.384, 0.0825
WRIST = 0.088
"""From the axis of the sixth joint to that of the seventh."""
HAND = 0.107 + 0.1034
"""From the axis of the sixth joint down to the middle between the fingertips."""
NEAREST, FARTHEST = 0.23, 0.718
"""Distances from shoulder to wrist that the elbow allows, with a margin."""

_A, _B = math.hypot(UPPER, ELBOW), math.hypot(FOREARM, ELBOW)
_ALPHA, _BETA = math.atan2(ELBOW, UPPER), math.atan2(ELBOW, FOREARM)

Vector = tuple[float, float, float]


def reachable(point: Vector) -> Vector:
    """Return the point, or where the ray from the shoulder through it leaves what the arm reaches."""
    dx, y, z = point[0] - BASE, point[1], point[2]
    across, up = math.hypot(dx, y) - WRIST, z + HAND - SHOULDER
    distance = math.hypot(across, up)
    if NEAREST <= distance <= FARTHEST:
        return point
    scale = min(max(distance, NEAREST), FARTHEST) / distance if distance > 0 else 0.0
    radius = across * scale + WRIST
    turn = radius / math.hypot(dx, y) if dx or y else 0.0
    return BASE + dx * turn, y * turn, up * scale + SHOULDER - HAND


def highest(x: float, y: float) -> float:
    """Return the greatest height that the arm reaches over a point of the table that is within its reach."""
    across = math.hypot(x - BASE, y) - WRIST
    return SHOULDER - HAND + math.sqrt(max(FARTHEST * FARTHEST - across * across, 0.0))


def nearest_yaw(point: Vector, yaw: float) -> float:
    """Return the yaw, give or take half turns, for which the last joint is nearest to its middle at a point.

    Half a turn makes no difference to two equal fingers.
    """
    last = math.pi / 4 + math.atan2(point[1], point[0] - BASE) - yaw
    return yaw + math.pi * round(last / math.pi)


def joint_angles(point: Vector, yaw: float = 0.0) -> list[float]:
    """Return the seven angles that bring the tool centre to a point, drawn into reach.

    ``yaw`` turns the hand about the vertical; at 0 the fingers open along y.
    """
    x, y, z = reachable(point)
    base = math.atan2(y, x - BASE)
    across, up = math.hypot(x - BASE, y) - WRIST, z + HAND - SHOULDER
    distance = math.hypot(across, up)
    at_elbow = math.acos(_clipped((_A * _A + _B * _B - distance * distance) / (2 * _A * _B)))
    at_shoulder = math.acos(_clipped((_A * _A + distance * distance - _B * _B) / (2 * _A * distance)))
    lift = math.atan2(across, up) - at_shoulder - _ALPHA  # of the upper arm from the vertical, without its offset
    elbow = at_elbow - math.pi - _ALPHA - _BETA
    return [base, lift, 0.0, elbow, 0.0, lift - elbow, math.pi / 4 + base - yaw]


def _clipped(cosine: float) -> float:
    return min(1.0, max(-1.0, cosine))


__all__ = ["Vector", "highest", "joint_angles", "nearest_yaw", "reachable"]
