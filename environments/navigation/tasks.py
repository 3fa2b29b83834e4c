"""Generator of navigation tasks: a room, a target, and a start whose shortest path has a length within a range.

An attempt samples a room, then targets and starts in it, until the shortest path to success has a length within the
range; steps are counted around furniture by the exact rules of movement. About half of the starts face the target.
"""

import math
import random

from ..grid import pick
from .moves import HEADINGS, REACH, Cell, Floor, fewest_steps
from .rooms.catalogue import KINDS, THINGS
from .rooms.generate import furnish, scene_name
from .rooms.parts import between, middle_of, shuffled
from .state import EMBEDDED, NavigationState, Pose, Target, metres, room_json

AGENT_HEIGHT = 0.9
"""Height of the agent's position over the floor, metres, as in AI2-THOR."""
_STARTS = 12  # attempts per target
_FACING = 0.45  # probability
_GRID = 50  # millimetres


_USES = {thing.type: thing.use for thing in THINGS}


def base_instruction(kind: str) -> str:
    """Return the instruction of the split ``base``."""
    return f"navigate to the {kind} in the room and get as close to it as you can"


def common_sense_instruction(kind: str) -> str:
    """Return the instruction of the split ``common_sense``, which describes the target by its use."""
    return f"I am looking for {_USES[kind]}. Please navigate to it and stay close to it."


def draw_task(
    rng: random.Random, fewest: int, most: int, distances: tuple[float, float] = (0.0, math.inf)
) -> NavigationState | None:
    """Sample a room and a task in it; return None if no task has a shortest path of ``fewest`` to ``most`` steps.

    ``distances`` are the minimum and maximum distance of the start from the target along the floor, metres.
    """
    kind = KINDS[pick(rng, len(KINDS))]
    room, targets = furnish(rng, kind)
    floor = Floor(room)
    for index in shuffled(rng, range(len(targets))):
        item = targets[index]
        x, y, z = middle_of(item.parts)
        for _ in range(_STARTS):
            start = between(rng, 200, room.size[0] - 200, _GRID), between(rng, 200, room.size[2] - 200, _GRID)
            rotation = _rotation(rng, start, (x, z))
            apart = (start[0] - x) ** 2 + (start[1] - z) ** 2
            if apart <= REACH * REACH or not floor.can_stand(start):
                continue
            if not (1000 * distances[0]) ** 2 <= apart <= (1000 * distances[1]) ** 2:
                continue
            steps = fewest_steps(floor.reachable(start, limit=most), (x, z))
            if steps is not None and fewest <= steps <= most:
                text = room_json(room)
                name = next(each.id for each in room.objects if each.type == item.type)  # the only one of its type
                target = Target(item.type, name, *metres((x, y, z)))
                pose = Pose(start[0] / 1000, AGENT_HEIGHT, start[1] / 1000, rotation, 0)
                return NavigationState(EMBEDDED, scene_name(kind, text), pose, target, text)
    return None


def _rotation(rng: random.Random, start: Cell, target: Cell) -> int:
    """Return a yaw: with probability ``_FACING`` the one that faces the target best, else a random one."""
    rotation = 90 * pick(rng, 4)
    if rng.random() >= _FACING:
        return rotation
    away = target[0] - start[0], target[1] - start[1]
    return max(HEADINGS, key=lambda yaw: HEADINGS[yaw][0] * away[0] + HEADINGS[yaw][1] * away[1])
