"""Exact labels of Sokoban episodes."""

from .solver import SokobanSolver, sample_level

__all__ = ["SokobanSolver", "sample_level"]
