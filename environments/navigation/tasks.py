"""Tasks in seeded rooms: what to find and where to start, so that a shortest way of reasonable length exists.

A try draws a room, then targets and starts in it, until the fewest steps to success lie in the asked-for range; steps
are counted around furniture by the exact rules of movement. About half of the starts face the target's side.
"""

import math
import random
from collections.abc import Sequence

from ..grid import pick
from .moves import HEADINGS, REACH, Cell, Floor, fewest_steps
from .rooms.generate import furnish, scene_name
from .rooms.parts import between, middle_of, shuffled
from .rooms.things import ALL
from .state import EMBEDDED, NavigationState, Pose, RoomObject, Target, metres, room_json

AGENT_HEIGHT = 0.9
"""Height of the agent's position over the floor, metres, as in AI2-THOR."""
_STARTS = 12
_FACING = 0.45
_GRID = 50


def draw_task(
    rng: random.Random, fewest: int, most: int, distances: tuple[float, float] = (0.0, math.inf)
) -> NavigationState | None:
    """Draw a room and a task in it; None when it holds none whose shortest way has ``fewest`` to ``most`` steps.

    ``distances`` are the least and the greatest that the start may be from the target along the floor, metres.
    """
    kind = ALL[pick(rng, len(ALL))]
    room, targets = furnish(rng, kind)
    floor = Floor(room)
    for index in shuffled(rng, range(len(targets))):
        wanted = targets[index]
        x, y, z = middle_of(wanted.parts)
        for _ in range(_STARTS):
            start = between(rng, 200, room.size[0] - 200, _GRID), between(rng, 200, room.size[2] - 200, _GRID)
            rotation = _rotation(rng, start, (x, z))
            apart = (start[0] - x) ** 2 + (start[1] - z) ** 2
            if apart <= REACH * REACH or not floor.can_stand(start):
                continue
            if not (1000 * distances[0]) ** 2 <= apart <= (1000 * distances[1]) ** 2:
                continue
            steps = fewest_steps(floor.reachable(start, most), (x, z))
            if steps is not None and fewest <= steps <= most:
                text = room_json(room)
                target = Target(wanted.type, _target_id(room.objects, wanted), *metres((x, y, z)))
                pose = Pose(start[0] / 1000, AGENT_HEIGHT, start[1] / 1000, rotation, 0)
                return NavigationState(EMBEDDED, scene_name(kind, text), pose, target, text)
    return None


def _target_id(objects: Sequence[RoomObject], wanted: RoomObject) -> str:
    """Return the id under which the room lists the target: the only object of its type."""
    return next(item.id for item in objects if item.type == wanted.type)


def _rotation(rng: random.Random, start: Cell, target: Cell) -> int:
    """Return a yaw: often the one that faces the target best, otherwise any."""
    rotation = 90 * pick(rng, 4)
    if rng.random() >= _FACING:
        return rotation
    away = target[0] - start[0], target[1] - start[1]
    return max(HEADINGS, key=lambda yaw: HEADINGS[yaw][0] * away[0] + HEADINGS[yaw][1] * away[1])
