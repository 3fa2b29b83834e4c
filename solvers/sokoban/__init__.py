"""Solver of Sokoban: exact labels."""

from .solver import SokobanSolver, sample_level

__all__ = ["SokobanSolver", "sample_level"]
