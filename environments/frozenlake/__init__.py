"""FrozenLake: gymnasium's lake without slipping."""

from .environment import FrozenLakeConfig, FrozenLakeEnv

__all__ = ["FrozenLakeConfig", "FrozenLakeEnv"]
