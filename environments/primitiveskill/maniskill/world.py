"""The tabletop in ManiSkill: a world whose physics and pictures come from a simulator in a process of its own.

A process that hangs, dies or answers nonsense is ended, and another one is brought to the same moment: the first state
is loaded and the primitives of the episode so far are executed again, which on the CPU ends at the same place to the
last bit; anything else is an error. Only when that fails, too, does the episode end in an error.

Loading a state builds ManiSkill's scene anew, with every thing axis-aligned and at rest: a state text holds places, no
turns and speeds. Going back to an earlier moment of an episode is therefore never loading that moment's state; it is
loading the first one and executing the same primitives (measured bit-identical, pictures included: docs/measured.md).
"""

import logging
import random
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from ....errors import ConfigError, LevelError, SimulatorError
from ....images import Frame
from ..actions import Primitive
from ..levels import draw_level
from ..state import MANISKILL, SkillState, settled
from ..tasks import Scene, TaskKind
from ..world import SIDE, World
from .process import ManiSkillProcess

PHYSICS = "physx_cpu"
"""ManiSkill's name of the physics backend: ``physx_cpu``, or ``physx_cuda`` (one scene on a GPU, not bit-exact)."""
ATTEMPTS = 2
"""Processes that are tried for one request before the episode is given up."""

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class ManiSkillWorld(World):
    """A table of ManiSkill; see the module docstring."""

    def __init__(self, physics: str = PHYSICS, start: Callable[[str], ManiSkillProcess] = ManiSkillProcess) -> None:
        """Create a world; the process starts with the first ``load``."""
        self._physics, self._start = physics, start
        self._process: ManiSkillProcess | None = None
        self._first: SkillState | None = None
        self._done: list[tuple[Primitive, Scene]] = []  # since the first state, and the scene after each
        self._scene: Scene | None = None
        self._frame: Frame | None = None

    def load(self, state: SkillState) -> None:
        """Go to a state; see the base class.

        Raises:
            LevelError: it is no state of ManiSkill.
            ConfigError: ManiSkill cannot be used here at all.
            SimulatorError: it failed, and so did another process.
        """
        if state.backend != MANISKILL:
            raise LevelError(f"the state is of the backend {state.backend!r}; the one in use is {MANISKILL!r}")
        scene = self._repeat(lambda process: _scene(process.load(state.text()), state.kind), replay=False)
        self._first, self._done, self._scene, self._frame = state, [], scene, None

    @property
    def scene(self) -> Scene:
        """Where everything is."""
        if self._scene is None:
            raise RuntimeError("no state has been loaded")
        return self._scene

    def execute(self, primitive: Primitive) -> None:
        """Execute a primitive; see the base class.

        Raises:
            SimulatorError: the simulator failed, and so did the attempt to bring another one to this moment.
        """
        kind = self._loaded.kind
        self._scene = self._repeat(lambda process: _scene(process.execute(str(primitive)), kind), replay=True)
        self._frame = None
        self._done.append((primitive, self._scene))

    def draw(self) -> Frame:
        """Return what the camera sees."""
        assert self._loaded
        if self._frame is None:
            self._frame = self._repeat(lambda process: _frame(*process.draw()), replay=True)
        return self._frame

    def frame_key(self) -> Hashable | None:
        """Return all that led to the frame, on the CPU; on a GPU equal actions may look different."""
        if self._physics != PHYSICS:
            return None
        return self._loaded.text(), tuple(str(primitive) for primitive, _ in self._done)

    def close(self) -> None:
        """End the process; the next ``load`` starts another one."""
        if self._process is not None:
            self._process.end()
        self._process = None

    @property
    def _loaded(self) -> SkillState:
        if self._first is None:
            raise RuntimeError("no state has been loaded")
        return self._first

    def _repeat(self, request: Callable[[ManiSkillProcess], Result], *, replay: bool) -> Result:
        """Make a request of the running process, or of a new one that was brought to the same moment."""
        failure: SimulatorError | None = None
        for attempt in range(ATTEMPTS):
            try:
                if self._process is None:
                    self._process = self._start(self._physics)
                    if replay:
                        self._catch_up(self._process)
                return request(self._process)
            except SimulatorError as error:
                _log.warning("attempt %d of %d: %s", attempt + 1, ATTEMPTS, error)
                failure = error
                self.close()
        raise SimulatorError(f"given up after {ATTEMPTS} processes: {failure}") from failure

    def _catch_up(self, process: ManiSkillProcess) -> None:
        """Load the first state and execute the primitives of the episode so far again."""
        first = self._loaded
        process.load(first.text())
        for number, (primitive, scene) in enumerate(self._done):
            again = _scene(process.execute(str(primitive)), first.kind)
            if again != scene and self._physics == PHYSICS:
                raise SimulatorError(
                    f"primitive {number} ({primitive}) executed again led to {again}; at first it was {scene}"
                )


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


def check_health(physics: str = PHYSICS, start: Callable[[str], ManiSkillProcess] = ManiSkillProcess) -> str:
    """Start ManiSkill, grasp a cube, take a picture, and end it; return what was found in one line.

    Raises:
        ConfigError: it cannot be used here.
    """
    world = ManiSkillWorld(physics, start)
    try:
        level = draw_level(random.Random(0), MANISKILL, ("stack",))
        assert level is not None
        world.load(level)
        x, y, z = level.scene.positions["red cube"]
        world.execute(Primitive("pick", (round(x), round(y), round(z))))
        frame, held = world.draw(), world.scene.held
    except SimulatorError as error:
        raise ConfigError(f"ManiSkill is not fit for a run: {error}") from error
    finally:
        world.close()
    if held != "red cube":
        raise ConfigError(f"ManiSkill runs, but its arm grasped {held or 'nothing'} where the red cube was")
    if int(frame.max()) - int(frame.min()) < 8:
        raise ConfigError("ManiSkill runs, but draws one flat colour; check the Vulkan driver with vulkaninfo")
    return f"ManiSkill grasps a cube and draws {SIDE}x{SIDE} frames with {physics}"


__all__ = ["PHYSICS", "ManiSkillWorld", "check_health"]
