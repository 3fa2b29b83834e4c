"""The four tabletop tasks: workspace, objects, stages and goal.

Lengths are millimetres in the coordinates of ManiSkill's table scene: the table top is z = 0, the robot is at (-615, 0)
and faces +x, and the camera looks at it from +x. Both backends share this file; a stage depends only on positions and
on the object in the hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from ...core.data import load_data

Point = tuple[float, float, float]
"""x, y, z in millimetres."""
Limits = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Lowest and highest coordinate along each axis, millimetres."""
Ranges = tuple[tuple[int, int], tuple[int, int]]
"""Lowest and highest x and y, millimetres."""

CUBE = 40.0
"""Side of a cube."""
APPLE = 70.0
"""Diameter of the apple."""
TABLE_HOME: Point = (-150.0, 0.0, 350.0)
DRAWER_HOME: Point = (-250.0, 100.0, 480.0)
"""Position of the tool centre after every primitive, without and with the drawer."""
ALIGN_TOLERANCE = 10.0
ON_TABLE = 50.0
"""Largest absolute height of the centre of an object that lies on the table."""
TARGET_RADIUS = 50.0
ON_DISTANCE = 20.0
"""A cube is on another if their centres differ by less than this in x and y, and by more than this in height."""
DRAWER_REACH = 100.0
"""Largest distance in x and in y of an object in the tray from the tray's centre."""
DRAWER_HEIGHTS = (100.0, 400.0)
CLOSED = 100.0
"""Largest opening at which the drawer counts as closed."""

TARGETS: dict[str, Point] = {"left target": (80.0, -100.0, 0.0), "right target": (80.0, 100.0, 0.0)}
DRAWER_TRAVEL = 300.0
"""Opening of a fully open drawer."""
START_OPENING = 180.0
"""Initial opening: 60 % of the travel."""
TRAY_CLOSED: Point = (-300.0, -360.0, 150.0)
"""Centre of the closed tray, at the height of its rim; it moves towards +y by the opening."""

Box = tuple[Point, Point]
"""Lowest and highest corner."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Positions of all objects, at rest after a primitive."""

    positions: Mapping[str, Point]
    """Centres of the movable objects, in the order of the task."""
    in_hand: str | None
    """Name of the object in the gripper, or None."""
    opening: float | None
    """Opening of the drawer; None in tasks without a drawer."""


@dataclass(frozen=True, slots=True)
class TaskKind:
    """Constants of a task."""

    name: str
    things: tuple[str, ...]
    """Names of the movable objects, in the order in which prompts list them."""
    starts: tuple[Ranges, ...]
    """Ranges of x and y of the initial position of each of them."""
    workspace: Limits
    instruction: str
    stages: tuple[str, ...]
    """Descriptions of the stages, in the order of ``achieved``."""

    @property
    def home(self) -> Point:
        """Position of the tool centre between primitives."""
        return DRAWER_HOME if self.name == "drawer" else TABLE_HOME


@dataclass(frozen=True)
class _Data:
    """Contents of ``tasks.yaml``."""

    tasks: tuple[TaskKind, ...]
    drawer: tuple[Box, ...]
    cabinet: tuple[Box, ...]


_DATA = TypeAdapter(_Data).validate_python(load_data(__file__, "tasks.yaml"))
KINDS = {kind.name: kind for kind in _DATA.tasks}
"""Tasks by name."""
DRAWER_BOXES, CABINET_BOXES = _DATA.drawer, _DATA.cabinet
"""Sliding parts of the closed drawer, the last of which is its front, and the parts around them."""


def tray_centre(opening: float) -> Point:
    """Return the centre of the tray for an opening of the drawer."""
    x, y, z = TRAY_CLOSED
    return x, y + opening, z


def update_achieved(kind: TaskKind, scene: Scene, achieved: tuple[bool, ...]) -> tuple[bool, ...]:
    """Return which stages are achieved now or were achieved before.

    In ``place`` the last stage, green cube grasped, counts only if the previous stage was achieved earlier.
    """
    in_hand, at = scene.in_hand, scene.positions
    if kind.name == "align":
        now = tuple(_at_line(at[thing]) for thing in kind.things)
    elif kind.name == "place":
        home = in_hand != "red cube" and _near(at["red cube"], TARGETS["left target"], TARGET_RADIUS)
        now = (in_hand == "red cube", home, in_hand == "green cube" and achieved[1])
    elif kind.name == "stack":
        on = in_hand != "red cube" and _on(at["red cube"], at["green cube"])
        now = (in_hand == "red cube", on, in_hand == "purple cube")
    else:
        now = (in_hand == "apple", _in_tray(scene))
    return tuple(before or new for before, new in zip(achieved, now, strict=True))


def reached(kind: TaskKind, scene: Scene) -> bool:
    """Return whether the goal of the task is reached now, regardless of the achieved stages."""
    at = scene.positions
    if kind.name == "align":
        return all(_at_line(at[thing]) for thing in kind.things)
    if kind.name == "drawer":
        return _in_tray(scene) and (scene.opening or 0.0) <= CLOSED
    if scene.in_hand is not None:
        return False
    if kind.name == "place":
        return _near(at["red cube"], TARGETS["left target"], TARGET_RADIUS) and _near(
            at["green cube"], TARGETS["right target"], TARGET_RADIUS
        )
    return _on(at["red cube"], at["green cube"]) and _on(at["purple cube"], at["red cube"])


def _at_line(point: Point) -> bool:
    return abs(point[0]) <= ALIGN_TOLERANCE and abs(point[2]) <= ON_TABLE


def _near(point: Point, target: Point, radius: float) -> bool:
    dx, dy = point[0] - target[0], point[1] - target[1]
    return dx * dx + dy * dy <= radius * radius


def _on(upper: Point, lower: Point) -> bool:
    dx, dy = upper[0] - lower[0], upper[1] - lower[1]
    return dx * dx + dy * dy < ON_DISTANCE * ON_DISTANCE and upper[2] > lower[2] + ON_DISTANCE


def _in_tray(scene: Scene) -> bool:
    if scene.in_hand == "apple" or scene.opening is None:
        return False
    x, y, z = scene.positions["apple"]
    cx, cy, _ = tray_centre(scene.opening)
    low, high = DRAWER_HEIGHTS
    return abs(x - cx) <= DRAWER_REACH and abs(y - cy) <= DRAWER_REACH and low <= z <= high
