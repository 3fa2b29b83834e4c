"""The drawer as boxes: a housing that stands on the table, and a tray that slides out of it towards +y.

Both backends build it from this list, for the eye and for what touches what. The measures follow from the hand: the
rim is low enough for the hand to push the front with its fingers at z = 150, and the floor high enough for an apple
to lie above z = 100, from where it counts as in the drawer.
"""

from dataclasses import dataclass

from ._primitiveskill_tasks import TRAY_CLOSED, Point

FLOOR, RIM = 80.0, 150.0
"""Heights of the tray's inner floor and of its walls' upper edge; TRAY_CLOSED gives the middle of its opening."""
INNER = 95.0
"""Half the inner width and depth of the tray."""
WALL = 5.0
FRONT = 110.0
"""The outer face of the front panel is this far from the tray's centre."""
FRONT_TOP, FRONT_BOTTOM, FRONT_HALF_WIDTH = 165.0, 65.0, 115.0
ROOF = 158.0
"""Height of the roof's underside."""
HOUSING_HALF_WIDTH, HOUSING_BACK, HOUSING_FRONT = 115.0, 110.0, 85.0
"""Half width in x, and how far the housing reaches behind and before the centre of the closed tray."""


@dataclass(frozen=True, slots=True)
class Box:
    """An axis-aligned box in millimetres; of the tray's boxes, where they are when the drawer is closed."""

    centre: Point
    half: Point


def _box(x: tuple[float, float], y: tuple[float, float], z: tuple[float, float]) -> Box:
    """Return the box between two offsets from the closed tray's centre in x and y, and two heights."""
    cx, cy, _ = TRAY_CLOSED
    centre = (cx + (x[0] + x[1]) / 2, cy + (y[0] + y[1]) / 2, (z[0] + z[1]) / 2)
    return Box(centre, ((x[1] - x[0]) / 2, (y[1] - y[0]) / 2, (z[1] - z[0]) / 2))


_OUTER = INNER + WALL

TRAY: tuple[Box, ...] = (
    _box((-_OUTER, _OUTER), (-_OUTER, _OUTER), (FLOOR - 2 * WALL, FLOOR)),
    _box((-_OUTER, -INNER), (-_OUTER, _OUTER), (FLOOR, RIM)),
    _box((INNER, _OUTER), (-_OUTER, _OUTER), (FLOOR, RIM)),
    _box((-INNER, INNER), (-_OUTER, -INNER), (FLOOR, RIM)),
    _box((-FRONT_HALF_WIDTH, FRONT_HALF_WIDTH), (_OUTER - WALL, FRONT), (FRONT_BOTTOM, FRONT_TOP)),
)
"""Floor, left and right wall, back wall, front panel."""
HOUSING: tuple[Box, ...] = (
    _box((-HOUSING_HALF_WIDTH, -_OUTER - 3), (-HOUSING_BACK, HOUSING_FRONT), (0, ROOF)),
    _box((_OUTER + 3, HOUSING_HALF_WIDTH), (-HOUSING_BACK, HOUSING_FRONT), (0, ROOF)),
    _box((-_OUTER - 3, _OUTER + 3), (-HOUSING_BACK, -_OUTER - 3), (0, ROOF)),
    _box((-_OUTER - 3, _OUTER + 3), (-_OUTER - 3, HOUSING_FRONT), (0, FRONT_BOTTOM - 5)),
    _box((-HOUSING_HALF_WIDTH, HOUSING_HALF_WIDTH), (-HOUSING_BACK, HOUSING_FRONT), (ROOF, ROOF + 8)),
)
"""Left and right side, back, base, roof. The roof is fixed, so an apple that lies high in the tray blocks it."""

__all__ = [
    "FLOOR",
    "FRONT",
    "FRONT_BOTTOM",
    "FRONT_HALF_WIDTH",
    "FRONT_TOP",
    "HOUSING",
    "INNER",
    "RIM",
    "ROOF",
    "TRAY",
    "WALL",
    "Box",
]
