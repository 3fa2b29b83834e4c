"""Interface between the tabletop environment and its backend, an embedded table or ManiSkill.

:class:`~pivot.environments.primitiveskill.PrimitiveSkillEnv` counts turns, stages, rewards and success; a world holds
the positions of the objects and renders square pictures with :data:`SIDE` pixels per side. Each environment instance
creates one world, which serves all four tasks.
"""

from abc import abstractmethod

from .. import backends
from .actions import Primitive
from .state import SkillState
from .tasks import Scene

SIDE = 300
"""Width and height of a frame, pixels."""
EYE, LOOKED_AT = (1000.0, 0.0, 600.0), (-200.0, 0.0, 200.0)
"""Position of the camera and the point that it looks at, millimetres."""
FIELD_OF_VIEW = 1.0
"""Field of view, radians."""


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
