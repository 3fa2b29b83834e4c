"""Solver of Sokoban: exact labels."""

from .search import sample_level
from .solver import SokobanSolver

__all__ = ["SokobanSolver", "sample_level"]
