"""Navigation: find an object in a room, embedded or in AI2-THOR."""

from .environment import NavigationConfig, NavigationEnv

__all__ = ["NavigationConfig", "NavigationEnv"]
