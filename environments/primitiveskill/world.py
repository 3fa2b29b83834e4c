"""The seam between the tabletop environment and what runs behind it: an embedded table, or ManiSkill.

:class:`~pivot.environments.primitiveskill.PrimitiveSkillEnv` keeps turns, stages, rewards and success; a world keeps
where things are and what the camera sees, a picture of :data:`SIDE` pixels square. A world is made once an environment
and serves all four tasks.
"""

from abc import abstractmethod

from .. import backends
from .actions import Primitive
from .state import SkillState
from .tasks import Scene

SIDE = 300
"""Width and height of a frame, pixels."""
EYE, LOOKED_AT = (1000.0, 0.0, 600.0), (-200.0, 0.0, 200.0)
"""The camera and the point it looks at, millimetres."""
FIELD_OF_VIEW = 1.0
"""Radians, of the whole picture."""


class World(backends.World[SkillState]):
    """Executes primitives and shows what the camera sees."""

    @property
    @abstractmethod
    def scene(self) -> Scene:
        """Where everything is now, in whole micrometres, the arm at home."""

    @abstractmethod
    def execute(self, primitive: Primitive) -> None:
        """Execute one primitive whose coordinates lie in the workspace, and go home.

        It may well achieve nothing: a pick that grasps nothing, a place with nothing held, a push through the air.

        Raises:
            SimulatorError: the simulator failed.
        """
