"""Solver of FrozenLake: exact labels."""

from .solver import FrozenLakeSolver

__all__ = ["FrozenLakeSolver"]
