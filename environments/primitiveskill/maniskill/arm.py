"""Closed-form joint angles of the Panda arm for a hand that points straight down.

Joints three and five stay at zero, so the arm moves in the vertical plane through its base axis and the tool centre:
shoulder and elbow form a triangle, the wrist turns the hand down, and the last joint turns the fingers. The angles
depend only on the point. A point out of reach is moved along the ray from the shoulder to the boundary of the
reachable set.

Lengths are metres in the world frame, angles radians. The constants come from the robot's public description.
"""

import math

BASE = -0.615
"""x of the base, which is at y = z = 0 and faces +x."""
SHOULDER = 0.333
UPPER, FOREARM, ELBOW = 0.316, 0.384, 0.0825
WRIST = 0.088
"""Distance from the axis of the sixth joint to that of the seventh."""
HAND = 0.107 + 0.1034
"""Distance from the axis of the sixth joint down to the midpoint of the fingertips."""
NEAREST, FARTHEST = 0.23, 0.718
"""Minimum and maximum distance from shoulder to wrist, with a margin."""

_A, _B = math.hypot(UPPER, ELBOW), math.hypot(FOREARM, ELBOW)
_ALPHA, _BETA = math.atan2(ELBOW, UPPER), math.atan2(ELBOW, FOREARM)

Vector = tuple[float, float, float]


def reachable(point: Vector) -> Vector:
    """Return the point, or the nearest reachable point on the ray from the shoulder through it."""
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
    """Return the greatest height that the arm reaches above a point of the table that is within its reach."""
    across = math.hypot(x - BASE, y) - WRIST
    return SHOULDER - HAND + math.sqrt(max(FARTHEST * FARTHEST - across * across, 0.0))


def nearest_yaw(point: Vector, yaw: float) -> float:
    """Return the yaw, modulo half turns, at which the last joint is closest to the centre of its range.

    The two fingers are equal, so half a turn makes no difference.
    """
    last = math.pi / 4 + math.atan2(point[1], point[0] - BASE) - yaw
    return yaw + math.pi * round(last / math.pi)


def joint_angles(point: Vector, yaw: float = 0.0) -> list[float]:
    """Return the seven angles that move the tool centre to a point, or to :func:`reachable` of it.

    ``yaw`` rotates the hand about the vertical axis; at 0 the fingers open along y.
    """
    x, y, z = reachable(point)
    base = math.atan2(y, x - BASE)
    across, up = math.hypot(x - BASE, y) - WRIST, z + HAND - SHOULDER
    distance = math.hypot(across, up)
    at_elbow = math.acos(_clipped((_A * _A + _B * _B - distance * distance) / (2 * _A * _B)))
    at_shoulder = math.acos(_clipped((_A * _A + distance * distance - _B * _B) / (2 * _A * distance)))
    lift = math.atan2(across, up) - at_shoulder - _ALPHA  # angle of the upper arm from the vertical, without offset
    elbow = at_elbow - math.pi - _ALPHA - _BETA
    return [base, lift, 0.0, elbow, 0.0, lift - elbow, math.pi / 4 + base - yaw]


def _clipped(cosine: float) -> float:
    return min(1.0, max(-1.0, cosine))
