"""Navigation: find an object in a room, embedded or in AI2-THOR."""

from .environment import NavigationConfig, NavigationEnv
from .moves import TURNS, Cell, Floor, direction, steps_to_target
from .room import floor_of
from .state import NavigationState, millimetres
from .world import ACTIONS

__all__ = [
    "ACTIONS",
    "TURNS",
    "Cell",
    "Floor",
    "NavigationConfig",
    "NavigationEnv",
    "NavigationState",
    "direction",
    "floor_of",
    "millimetres",
    "steps_to_target",
]
