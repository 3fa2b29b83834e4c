"""Tabletop in ManiSkill: a world whose physics and pictures come from a simulator in a child process.

If the process is lost, a new one loads the initial state and re-executes the primitives of the episode. On the CPU the
result is bit-identical; a different result is an error.

Loading a state rebuilds ManiSkill's scene with every object axis-aligned and at rest, because a state text contains
positions but no rotations and velocities. An earlier moment of an episode is therefore never restored from its own
state, but by loading the initial state and re-executing the primitives (bit-identical, including pictures:
docs/internals/measured.md).
"""

import random
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ....core.errors import ConfigError, SimulatorError
from ....core.images import Frame
from ...simulators import SimulatorWorld
from ..actions import Primitive
from ..levels import draw_level
from ..state import MANISKILL, SkillState, settled
from ..tasks import Scene, TaskKind
from ..world import CameraName, World, side_of
from .process import ManiSkillProcess

PHYSICS = "physx_cpu"
"""ManiSkill's name of the physics backend: ``physx_cpu``, or ``physx_cuda`` (one scene on a GPU, not bit-exact)."""


class ManiSkillWorld(SimulatorWorld[ManiSkillProcess, SkillState, Primitive, Scene], World):
    """A table of ManiSkill; see the module docstring."""

    simulator = ManiSkillProcess

    def __init__(
        self,
        physics: str = PHYSICS,
        start: Callable[[str], ManiSkillProcess] = ManiSkillProcess,
        *,
        camera: CameraName = "near",
    ) -> None:
        """Create a world; the process starts with the first ``load``."""
        super().__init__(lambda: start(physics))
        self._camera: CameraName = camera
        self._physics = physics

    @property
    def scene(self) -> Scene:
        """The current scene."""
        return self._loaded[1]

    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive; see the base class."""
        self._act(primitive)

    def frame_key(self) -> Hashable | None:
        """Return level and actions on the CPU; None on a GPU, where pictures of equal actions may differ."""
        if self._physics != PHYSICS:
            return None
        return self._loaded[0].text(), tuple(str(primitive) for primitive, _ in self._done)

    def _try_out(self) -> Frame:
        level = draw_level(random.Random(0), MANISKILL, ("stack",))
        assert level is not None
        self.load(level)
        x, y, z = level.scene.positions["red cube"]
        self.execute(Primitive("pick", (round(x), round(y), round(z))))
        if (in_hand := self.scene.in_hand) != "red cube":
            raise ConfigError(f"ManiSkill runs, but its arm grasped {in_hand or 'nothing'} where the red cube was")
        return self.draw()

    def _enter(self, process: ManiSkillProcess, state: SkillState) -> Scene:
        return _scene(process.load(state.text(), self._camera), state.kind)

    def _execute(self, process: ManiSkillProcess, action: Primitive) -> Scene:
        return _scene(process.execute(str(action)), self._loaded[0].kind)

    def _look(self, process: ManiSkillProcess) -> Frame:
        return _frame(*process.draw(), side_of(self._camera))

    def _repeats(self, again: Scene, before: Scene) -> bool:
        return again == before or self._physics != PHYSICS


def _scene(answer: dict[str, Any], kind: TaskKind) -> Scene:
    """Return the scene in an answer of the process.

    Raises:
        SimulatorError: the answer is not a scene of the task.
    """
    try:
        scene = answer["scene"]
        positions = {name: tuple(float(length) for length in scene["objects"][name]) for name in kind.things}
        in_hand, opening = scene["held"], scene["opening"]
        numbers = [length for at in positions.values() for length in at] + ([] if opening is None else [opening])
        good = all(len(at) == 3 for at in positions.values()) and bool(np.isfinite(np.array(numbers, float)).all())
    except (KeyError, TypeError, ValueError) as error:
        raise SimulatorError(f"ManiSkill's answer {str(answer)[:200]} is not a scene: {error}") from error
    if not good or (in_hand is not None and in_hand not in kind.things) or (opening is None) != (kind.name != "drawer"):
        raise SimulatorError(f"ManiSkill's answer {str(answer)[:200]} is not a scene of the task {kind.name}")
    return settled(Scene({name: (at[0], at[1], at[2]) for name, at in positions.items()}, in_hand, opening))


def _frame(about: dict[str, Any], pixels: bytes, side: int) -> Frame:
    if about != {"picture": [side, side, 3], "type": "uint8"} or len(pixels) != side * side * 3:
        raise SimulatorError(f"ManiSkill's picture is {about} in {len(pixels)} bytes, expected {side}x{side} RGB bytes")
    return np.frombuffer(pixels, np.uint8).reshape(side, side, 3)
