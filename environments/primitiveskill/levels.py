"""Generator of tabletop levels: initial positions within the ranges of the tasks.

Coordinates are uniform. All are sampled again until the hand can close on each cube without touching another, and no
stage is achieved. They are half a millimetre off whole millimetres: commands are whole millimetres, so no carried
object ends exactly on a limit such as x = 10, where the last digit of a simulator would decide. The task is sampled
first and kept, so that all tasks are equally frequent, however many attempts their layouts need.
"""

import random
from collections.abc import Sequence

from ..grid import pick
from .state import SkillState
from .table.boxes import half_side
from .tasks import KINDS, START_OPENING, Point, Scene, TaskKind, reached, update_achieved

LAYOUTS = 200
"""Layouts to sample per seed; in the task with the most objects, about one in three is accepted."""
CLEAR = (50, 100)
"""Minimum distance of two centres in x, or in y: the open fingers can then close on one object without touching the
other, even if they are 15 mm off."""


def draw_level(rng: random.Random, backend: str, tasks: Sequence[str]) -> SkillState | None:
    """Return a level of one of ``tasks``, or None if no sampled layout had enough space between the objects."""
    kind = KINDS[tasks[pick(rng, len(tasks))]]
    for _ in range(LAYOUTS):
        scene = _layout(rng, kind)
        achieved = (False,) * len(kind.stages)
        if _clear(scene) and not any(update_achieved(kind, scene, achieved)) and not reached(kind, scene):
            return SkillState(backend, kind.name, scene, achieved)
    return None


def _layout(rng: random.Random, kind: TaskKind) -> Scene:
    positions: dict[str, Point] = {}
    for thing, ranges in zip(kind.things, kind.starts, strict=True):
        x, y = (low + pick(rng, high - low) + 0.5 for low, high in ranges)
        positions[thing] = x, y, half_side(thing)
    return Scene(positions, None, START_OPENING if kind.name == "drawer" else None)


def _clear(scene: Scene) -> bool:
    places = list(scene.positions.values())
    return all(
        abs(one[0] - other[0]) >= CLEAR[0] or abs(one[1] - other[1]) >= CLEAR[1]
        for index, one in enumerate(places)
        for other in places[:index]
    )
