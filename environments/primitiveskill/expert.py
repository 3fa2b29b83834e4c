"""The perfect player's next action on the tabletop: a pure function of the object positions.

It evaluates the scene in every turn, so it recovers from earlier mistakes: an object in the hand is put where it
belongs, an object in the way is moved aside, and a tower is taken apart from the top. A cube or the apple takes one
turn (pick and place), the drawer's front one more.
"""

from collections.abc import Iterable, Iterator, Mapping

from .actions import Primitive, join
from .tasks import (
    ALIGN_TOLERANCE,
    CLOSED,
    CUBE,
    DRAWER_BOXES,
    TARGETS,
    TRAY_CLOSED,
    Point,
    Scene,
    TaskKind,
    reached,
    tray_centre,
)

LOWER = {"red cube": "green cube", "purple cube": "red cube"}
"""Support of each cube of the tower."""
DROP = 8
"""Height above its support at which an object is released, millimetres."""
CLEAR_X, CLEAR_Y = 50.0, 90.0
"""Centres of cubes further apart than this, in x or in y, leave room for the hand, whose fingers open along y."""
SPOTS_X, SPOTS_Y = range(-80, 141, 20), range(-180, 181, 20)
"""Spots for a cube that is in the way."""
BESIDE = (0, 20, -20, 40, -40)
"""Distance from the middle of an occupied target, in x and y, at which a cube may be put."""
FRONT = round(DRAWER_BOXES[-1][1][1] - TRAY_CLOSED[1])
"""Distance along y from the tray's centre to the outer face of the drawer's front."""
BEFORE, FINGER = 55, 15
"""Distances from the front at which a push begins and at which the middle of the closed hand is on contact."""
PUSH_HEIGHT = round(DRAWER_BOXES[-1][1][2]) - 20
"""Height just below the upper edge of the front, where the body of the hand passes over it."""
PUSHED_TO = 30
"""Opening that a push aims at: closed, with a margin for the thickness of the front."""
WELL_INSIDE = 45
"""Distance from the middle of a target at which a cube is on it despite rounding."""
INTO_TRAY = 45
"""Height above the tray's centre at which the apple is released."""


def expert_action(kind: TaskKind, scene: Scene) -> str:
    """Return the name of the action, one or two primitives, that a perfect player would take now.

    Coordinates are whole millimetres. A scene in which the goal is reached gets a push through the air.
    """
    if reached(kind, scene):
        return _idle(kind)
    if kind.name == "drawer":
        return _drawer(kind, scene)
    thing = scene.in_hand or _next_thing(kind, scene)
    if thing is None:
        return _idle(kind)
    place = _place(kind, scene, thing, _destination(kind, scene, thing))
    if scene.in_hand is not None:
        return join((place, *_follow_up(kind, scene, thing)))
    return join((_pick(scene.positions[thing]), place))


def _drawer(kind: TaskKind, scene: Scene) -> str:
    opening = scene.opening or 0.0
    x, y, z = (round(value) for value in tray_centre(opening))
    into = _place(kind, scene, "apple", (x, y, z + INTO_TRAY))
    end = round(tray_centre(PUSHED_TO)[1]) + FRONT + FINGER
    shut = Primitive("push", (x, y + FRONT + BEFORE, PUSH_HEIGHT, x, end, PUSH_HEIGHT))
    if scene.in_hand == "apple":
        return join((into, shut))
    if _apple_is_in(kind, scene):
        return join((shut,)) if opening > CLOSED else _idle(kind)
    return join((_pick(scene.positions["apple"]), into))


def _apple_is_in(kind: TaskKind, scene: Scene) -> bool:
    """Whether closing the drawer is all that is missing."""
    x, y, z = scene.positions["apple"]
    _, moved, _ = tray_centre(scene.opening or 0.0)
    shut = Scene({"apple": (x, y - moved + tray_centre(0.0)[1], z)}, scene.in_hand, 0.0)
    return reached(kind, shut)


def _next_thing(kind: TaskKind, scene: Scene) -> str | None:
    """Return the thing to move next: the first in a wrong place, a tower from below, the top of a pile first."""
    at = scene.positions
    order = ("green cube", "red cube", "purple cube") if kind.name == "stack" else kind.things
    wrong = [thing for thing in order if not _is_right(kind, scene, thing)]
    if not wrong:
        return None
    free = [thing for thing in wrong if not _crowded(thing, at)]
    thing = free[0] if free and kind.name != "stack" else wrong[0]
    seen = {thing}
    while True:
        above = _things_on(thing, at) or _in_the_way(kind, thing, at)
        above = [other for other in above if other not in seen]
        if not above:
            return thing
        thing = above[0]
        seen.add(thing)


def _is_right(kind: TaskKind, scene: Scene, thing: str) -> bool:
    at = scene.positions
    x, y, z = at[thing]
    if kind.name == "align":
        return abs(x) <= ALIGN_TOLERANCE and z < CUBE
    if kind.name == "place":
        return _close((x, y, z), _target(thing))
    below = LOWER.get(thing)
    if below is None:
        return z < CUBE  # green has to lie on the table
    return _rests_on(at[thing], at[below]) and _is_right(kind, scene, below)


def _in_the_way(kind: TaskKind, thing: str, at: Mapping[str, Point]) -> list[str]:
    """Return the objects at the place where ``thing`` has to go."""
    if kind.name == "place":
        others = {other: point for other, point in at.items() if other != thing}
        return [] if _spot_at_target(thing, list(others.values())) else list(others)
    below = LOWER.get(thing) if kind.name == "stack" else None
    return [other for other in _things_on(below, at) if other != thing] if below else []


def _destination(kind: TaskKind, scene: Scene, thing: str) -> tuple[int, int, int]:
    """Return where ``thing`` is to be let go."""
    at = scene.positions
    others = [point for name, point in at.items() if name != thing]
    low = round(CUBE / 2) + DROP
    x, y, _ = (round(value) for value in at[thing])
    spot = None
    if kind.name == "align":
        spot = _first_free(((0, near) for near in _ways_out(y)), others)
    elif kind.name == "place":
        spot = _spot_at_target(thing, others)
        others += TARGETS.values()
    elif _can_be_stacked(kind, scene, thing):
        bx, by, bz = (round(value) for value in at[LOWER[thing]])
        return bx, by, bz + round(CUBE) + DROP
    if spot is None:
        aside = [(sx, sy) for sx in SPOTS_X for sy in SPOTS_Y]
        aside.sort(key=lambda spot: (spot[0] - x) ** 2 + (spot[1] - y) ** 2)
        spot = _first_free(aside, others) or aside[0]
    return (*spot, low)


def _spot_at_target(thing: str, others: list[Point]) -> tuple[int, int] | None:
    x, y, _ = (round(value) for value in _target(thing))
    spots = ((x + dx, y + dy) for dx in BESIDE for dy in BESIDE if dx * dx + dy * dy <= WELL_INSIDE**2)
    return _first_free(spots, others)


def _can_be_stacked(kind: TaskKind, scene: Scene, thing: str) -> bool:
    below = LOWER.get(thing)
    laid = Scene(scene.positions, None, None)
    return below is not None and not _in_the_way(kind, thing, scene.positions) and _is_right(kind, laid, below)


def _follow_up(kind: TaskKind, scene: Scene, thing: str) -> tuple[Primitive, ...]:
    """Return the pick that fits in the turn after the held ``thing`` is put down: the next thing to move, if any."""
    x, y, z = _destination(kind, scene, thing)
    at = {**scene.positions, thing: (float(x), float(y), float(z - DROP))}
    following = _next_thing(kind, Scene(at, None, None))
    return () if following in (None, thing) else (_pick(at[following]),)


def _ways_out(y: int) -> Iterator[int]:
    """Return y-coordinates on the line, ``y`` first, then further and further away."""
    y = min(max(y, -180), 180)
    for distance in range(0, 361, 10):
        for way in (y - distance, y + distance):
            if -180 <= way <= 180:
                yield way


def _first_free(spots: Iterable[tuple[int, int]], others: list[Point]) -> tuple[int, int] | None:
    """Return the first spot that leaves the hand room beside the others."""
    for x, y in spots:
        if all(abs(x - ox) >= CLEAR_X or abs(y - oy) >= CLEAR_Y for ox, oy, _ in others):
            return x, y
    return None


def _crowded(thing: str, at: Mapping[str, Point]) -> bool:
    """Return whether another object is where a finger has to go."""
    x, y, z = at[thing]
    return any(
        name != thing and abs(x - ox) < CUBE * 0.8 and CUBE / 2 < abs(y - oy) < 1.8 * CUBE and abs(z - oz) < CUBE / 2
        for name, (ox, oy, oz) in at.items()
    )


def _things_on(below: str, at: Mapping[str, Point]) -> list[str]:
    return [name for name, point in at.items() if name != below and _rests_on(point, at[below])]


def _rests_on(upper: Point, lower: Point) -> bool:
    dx, dy = upper[0] - lower[0], upper[1] - lower[1]
    return dx * dx + dy * dy < 20**2 and CUBE / 2 < upper[2] - lower[2] < 1.5 * CUBE


def _close(point: Point, target: Point) -> bool:
    return (point[0] - target[0]) ** 2 + (point[1] - target[1]) ** 2 <= WELL_INSIDE**2


def _target(thing: str) -> Point:
    return TARGETS["left target" if thing == "red cube" else "right target"]


def _place(kind: TaskKind, scene: Scene, thing: str, there: tuple[int, int, int]) -> Primitive:
    """Return the call that brings ``thing`` there, whether it hangs off the middle of the hand or is to be grasped."""
    if scene.in_hand != thing:
        return Primitive("place", there)
    off = (here - home for here, home in zip(scene.positions[thing], kind.home, strict=True))
    return Primitive("place", tuple(round(to - by) for to, by in zip(there, off, strict=True)))


def _pick(at: Point) -> Primitive:
    return Primitive("pick", tuple(round(value) for value in at))


def _idle(kind: TaskKind) -> str:
    (x, _), (y, _), (_, z) = kind.workspace
    return join((Primitive("push", (x, y, z, x, y, z)),))
