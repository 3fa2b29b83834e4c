"""PrimitiveSkill: a robot arm over a table, embedded or in ManiSkill."""

from .environment import PrimitiveSkillConfig, PrimitiveSkillEnv

__all__ = ["PrimitiveSkillConfig", "PrimitiveSkillEnv"]
