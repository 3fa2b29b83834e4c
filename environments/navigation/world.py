"""The seam between the navigation environment and what runs behind it: an embedded room, or AI2-THOR.

:class:`~pivot.environments.navigation.NavigationEnv` keeps turns, rewards and success; a world keeps where the agent is
and what it sees. A world is chosen by ``config.backend`` and made once an environment.
"""

from abc import abstractmethod

from .. import backends
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


class World(backends.World[NavigationState]):
    """Executes actions and shows what the agent sees."""

    @property
    @abstractmethod
    def state(self) -> NavigationState:
        """The current state."""

    @abstractmethod
    def act(self, action: str) -> bool:
        """Execute one of :data:`ACTIONS`; return whether it succeeded (``last_action_success``)."""
