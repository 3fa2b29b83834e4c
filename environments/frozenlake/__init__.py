"""FrozenLake: gymnasium's lake without slipping (spec section 2)."""

from .environment import LEGEND, FrozenLakeConfig, FrozenLakeEnv

__all__ = ["LEGEND", "FrozenLakeConfig", "FrozenLakeEnv"]
