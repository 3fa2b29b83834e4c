"""Solver of PrimitiveSkill: labels from the number of remaining stages."""

from .planner import HELD_ABOVE, read_observation
from .solver import PrimitiveSkillSolver

__all__ = ["HELD_ABOVE", "PrimitiveSkillSolver", "read_observation"]
