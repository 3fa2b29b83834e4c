"""Interface between the navigation environment and its backend, an embedded room or AI2-THOR.

:class:`~pivot.environments.navigation.NavigationEnv` counts turns, rewards and success; a world holds the agent's pose
and renders its view. ``config.backend`` selects the world; each environment instance creates one.
"""

from abc import abstractmethod

from .. import backends
from .state import NavigationState

ACTIONS = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
"""Usable actions; their indices are the members of ``action_space``."""


class World(backends.World[NavigationState]):
    """Executor of actions and renderer of the agent's view."""

    @property
    @abstractmethod
    def state(self) -> NavigationState:
        """The current state."""

    @abstractmethod
    def act(self, action: str) -> bool:
        """Execute one of :data:`ACTIONS`; return whether it succeeded (``last_action_success``)."""
