"""Any deterministic gymnasium environment by its id, labelled without a solver of its own."""

from .environment import GymConfig, GymEnv

__all__ = ["GymConfig", "GymEnv"]
