"""The seam between the tabletop environment and what runs behind it: an embedded table, or ManiSkill.

:class:`~pivot.environments.primitiveskill.PrimitiveSkillEnv` keeps turns, stages, rewards and success; a world keeps
where things are and what the camera sees. A world is made once an environment and serves all four tasks. Going back to
an earlier moment is always "load the first state, do the same primitives again", so a world needs no snapshots.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable

from ...images import Frame
from .actions import Primitive
from .state import SkillState
from .tasks import Scene

SIDE = 300
"""Width and height of a frame, pixels."""
EYE, LOOKED_AT = (1000.0, 0.0, 600.0), (-200.0, 0.0, 200.0)
"""The camera and the point it looks at, millimetres."""
FIELD_OF_VIEW = 1.0
"""Radians, of the whole picture."""


class World(ABC):
    """Executes primitives and shows what the camera sees."""

    @abstractmethod
    def load(self, state: SkillState) -> None:
        """Go to a state, whatever was before.

        Raises:
            LevelError: the state cannot be loaded; the world is then as it was.
            SimulatorError: the simulator failed.
        """

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

    @abstractmethod
    def draw(self) -> Frame:
        """Return what the camera sees now, :data:`SIDE` pixels square, RGB, lossless."""

    @abstractmethod
    def frame_key(self) -> Hashable | None:
        """Return a key that is equal only for equal frames of a level, or None where frames may vary."""

    def close(self) -> None:  # noqa: B027 - most worlds hold nothing
        """Release what the world holds."""
