"""Interface between the tabletop environment and its backend, an embedded table or ManiSkill.

:class:`~pivot.environments.primitiveskill.PrimitiveSkillEnv` counts turns, stages, rewards and success; a world holds
the positions of the objects and renders square pictures as a :class:`Camera` sees them. Each environment instance
creates one world, which serves all four tasks.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

from .. import backends
from .actions import Primitive
from .state import SkillState
from .tasks import KINDS, Point, Scene

CameraName = Literal["near", "far"]
"""The camera that frames the workspace, and the paper's."""


@dataclass(frozen=True, slots=True)
class Camera:
    """Position, direction and resolution of the camera; it is level and looks along -x."""

    eye: Point
    """Position, millimetres."""
    looked_at: Point
    """Point in the middle of the frame, millimetres."""
    zoom: float
    """Magnification, relative to a field of view of one radian."""
    side: int
    """Width and height of a frame, pixels."""

    @property
    def field_of_view(self) -> float:
        """Field of view, radians."""
        return 2 * math.atan(math.tan(0.5) / self.zoom)


FAR = Camera((1000.0, 0.0, 600.0), (-200.0, 0.0, 200.0), 1.0, 300)
TABLE = Camera((1400.0, 0.0, 1345.0), (-130.0, 0.0, 60.0), 3.7, 420)
"""Frames the workspace of the three tasks with cubes, the cube in the hand, and cubes pushed 30 mm out."""
DRAWER = Camera((1345.0, -200.0, 1480.0), (-190.0, -200.0, 195.0), 2.5, 420)
"""Frames cabinet, open drawer, the workspace on the table, and the apple in the hand."""
CAMERAS: dict[CameraName, dict[str, Camera]] = {
    "near": {task: DRAWER if task == "drawer" else TABLE for task in KINDS},
    "far": dict.fromkeys(KINDS, FAR),
}
"""Camera of every task. A cube is at least 28 pixels wide in the near ones, the side of one visual token of common
models, and at least 9 in the far one."""
assert tuple(CAMERAS) == get_args(CameraName)


def side_of(name: CameraName) -> int:
    """Return width and height of a camera's frames, pixels; equal for all tasks."""
    return next(iter(CAMERAS[name].values())).side


class World(backends.World[SkillState]):
    """Executor of primitives and renderer of the camera's picture."""

    @property
    @abstractmethod
    def scene(self) -> Scene:
        """The current scene, in whole micrometres, with the arm at home."""

    @abstractmethod
    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive whose coordinates are in the workspace, and move home.

        It may have no effect: a pick that grasps nothing, a place with an empty hand, a push through the air.

        Raises:
            SimulatorError: the simulator failed.
        """
