"""FrozenLake: gymnasium's lake without slipping."""

from .environment import LEGEND, FrozenLakeConfig, FrozenLakeEnv

__all__ = ["LEGEND", "FrozenLakeConfig", "FrozenLakeEnv"]
