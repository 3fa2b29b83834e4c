"""PrimitiveSkill: a robot arm over a table, embedded or in ManiSkill."""

from .actions import Primitive, join, read_primitives
from .environment import PrimitiveSkillConfig, PrimitiveSkillEnv
from .state import SkillState
from .tasks import (
    ALIGN_TOLERANCE,
    CLOSED,
    CUBE,
    DRAWER_BOXES,
    KINDS,
    TARGETS,
    TRAY_CLOSED,
    Point,
    Scene,
    TaskKind,
    reached,
    tray_centre,
)

__all__ = [
    "ALIGN_TOLERANCE",
    "CLOSED",
    "CUBE",
    "DRAWER_BOXES",
    "KINDS",
    "TARGETS",
    "TRAY_CLOSED",
    "Point",
    "Primitive",
    "PrimitiveSkillConfig",
    "PrimitiveSkillEnv",
    "Scene",
    "SkillState",
    "TaskKind",
    "join",
    "reached",
    "read_primitives",
    "tray_centre",
]
