"""Exact labels of FrozenLake episodes."""

from .solver import FrozenLakeSolver

__all__ = ["FrozenLakeSolver"]
