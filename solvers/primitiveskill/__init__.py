"""Labels of PrimitiveSkill episodes by the stages that are left."""

from .planner import HELD_ABOVE, read_observation
from .solver import PrimitiveSkillSolver

__all__ = ["HELD_ABOVE", "PrimitiveSkillSolver", "read_observation"]
