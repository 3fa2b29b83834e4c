"""The seam between the navigation environment and what runs behind it: an embedded room, or AI2-THOR.

:class:`~pivot.environments.navigation.NavigationEnv` keeps turns, rewards and success; a world keeps where the agent is
and what it sees. A world is chosen by ``config.backend`` and made once an environment. Going back to an earlier moment
is always "load the first state, do the same actions again", so a world needs no snapshots.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable

from ...images import Frame
from .state import NavigationState

ACTIONS = (
    "moveahead",
    "moveback",
    "moveright",
    "moveleft",
    "rotateright",
    "rotateleft",
    "lookup",
    "lookdown",
)
"""Usable actions in the public order; their positions are the members of ``action_space``."""
TRANSLATIONS = ACTIONS[:4]


class World(ABC):
    """Executes actions and shows what the agent sees."""

    @abstractmethod
    def load(self, state: NavigationState) -> None:
        """Go to a state's scene and pose, whatever was before.

        Raises:
            LevelError: the state cannot be loaded; the world is then as it was.
        """

    @property
    @abstractmethod
    def state(self) -> NavigationState:
        """The current state."""

    @abstractmethod
    def act(self, action: str) -> bool:
        """Execute one of :data:`ACTIONS`; return whether it succeeded (``last_action_success``)."""

    @abstractmethod
    def draw(self) -> Frame:
        """Return what the agent sees now, RGB, lossless."""

    @abstractmethod
    def frame_key(self) -> Hashable | None:
        """Return a key that is equal only for equal frames of a level, or None where frames may vary."""

    def close(self) -> None:
        """Release what the world holds."""
        return
