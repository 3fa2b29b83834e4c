"""The tabletop in ManiSkill: a world whose physics and pictures come from a simulator in a process of its own.

When a process is lost, another one is brought to the same moment: the first state is loaded and the primitives of the
episode so far are executed again, which on the CPU ends at the same place to the last bit; anything else is an error.

Loading a state builds ManiSkill's scene anew, with every thing axis-aligned and at rest: a state text holds places, no
turns and speeds. Going back to an earlier moment of an episode is therefore never loading that moment's state; it is
loading the first one and executing the same primitives (bit-identical, pictures included: docs/internals/measured.md).
"""

import random
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ....errors import ConfigError, SimulatorError
from ....images import Frame
from ...simulators import SimulatorWorld
from ..actions import Primitive
from ..levels import draw_level
from ..state import MANISKILL, SkillState, settled
from ..tasks import Scene, TaskKind
from ..world import SIDE, World
from .process import ManiSkillProcess

PHYSICS = "physx_cpu"
"""ManiSkill's name of the physics backend: ``physx_cpu``, or ``physx_cuda`` (one scene on a GPU, not bit-exact)."""


class ManiSkillWorld(SimulatorWorld[ManiSkillProcess, SkillState, Primitive, Scene], World):
    """A table of ManiSkill; see the module docstring."""

    simulator = ManiSkillProcess

    def __init__(self, physics: str = PHYSICS, start: Callable[[str], ManiSkillProcess] = ManiSkillProcess) -> None:
        """Create a world; the process starts with the first ``load``."""
        super().__init__(lambda: start(physics))
        self._physics = physics

    @property
    def scene(self) -> Scene:
        """Where everything is."""
        return self._loaded[1]

    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive; see the base class."""
        self._act(primitive)

    def frame_key(self) -> Hashable | None:
        """Return all that led to the frame, on the CPU; on a GPU equal actions may look different."""
        if self._physics != PHYSICS:
            return None
        return self._loaded[0].text(), tuple(str(primitive) for primitive, _ in self._done)

    def _try_out(self) -> Frame:
        level = draw_level(random.Random(0), MANISKILL, ("stack",))
        assert level is not None
        self.load(level)
        x, y, z = level.scene.positions["red cube"]
        self.execute(Primitive("pick", (round(x), round(y), round(z))))
        if (held := self.scene.held) != "red cube":
            raise ConfigError(f"ManiSkill runs, but its arm grasped {held or 'nothing'} where the red cube was")
        return self.draw()

    def _enter(self, process: ManiSkillProcess, state: SkillState) -> Scene:
        return _scene(process.load(state.text()), state.kind)

    def _execute(self, process: ManiSkillProcess, action: Primitive) -> Scene:
        return _scene(process.execute(str(action)), self._loaded[0].kind)

    def _look(self, process: ManiSkillProcess) -> Frame:
        return _frame(*process.draw())

    def _repeats(self, again: Scene, before: Scene) -> bool:
        return again == before or self._physics != PHYSICS


def _scene(answer: dict[str, Any], kind: TaskKind) -> Scene:
    """Return the scene of an answer.

    Raises:
        SimulatorError: it is none of the task's.
    """
    try:
        told = answer["scene"]
        positions = {name: tuple(float(length) for length in told["objects"][name]) for name in kind.things}
        held, opening = told["held"], told["opening"]
        numbers = [length for at in positions.values() for length in at] + ([] if opening is None else [opening])
        good = all(len(at) == 3 for at in positions.values()) and bool(np.isfinite(np.array(numbers, float)).all())
    except (KeyError, TypeError, ValueError) as error:
        raise SimulatorError(f"ManiSkill's answer {str(answer)[:200]} is no scene: {error}") from error
    if not good or (held is not None and held not in kind.things) or (opening is None) != (kind.name != "drawer"):
        raise SimulatorError(f"ManiSkill's answer {str(answer)[:200]} is no scene of the task {kind.name}")
    return settled(Scene({name: (at[0], at[1], at[2]) for name, at in positions.items()}, held, opening))


def _frame(about: dict[str, Any], pixels: bytes) -> Frame:
    if about != {"picture": [SIDE, SIDE, 3], "type": "uint8"} or len(pixels) != SIDE * SIDE * 3:
        raise SimulatorError(f"ManiSkill's picture is {about} in {len(pixels)} bytes, expected {SIDE}x{SIDE} RGB bytes")
    return np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE, 3)


__all__ = ["PHYSICS", "ManiSkillWorld"]
