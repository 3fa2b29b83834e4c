"""Navigation in AI2-THOR: a world whose rooms, movement and pictures come from a Unity simulator.

If a simulator is lost, a new one loads the scene and the start pose and re-executes the actions of the episode, each
of which must succeed or fail as before and lead to the same pose. Rendering on a GPU is not bit-exact, and physics may
differ by less than a millimetre; poses are therefore compared with a tolerance, and frames not at all
(``NavigationConfig.repeats_exactly``).
"""

from collections.abc import Callable

from ....core.errors import LevelError, SimulatorError
from ....core.images import Frame
from ...simulators import SimulatorWorld
from ..state import NavigationState, Pose
from ..world import ACTIONS, World
from .process import Reading, ThorProcess

STEP_LENGTH, TURN, TILT = 0.5, 90, 30
"""Metres and degrees of one action."""
COMMANDS: dict[str, tuple[str, dict[str, float]]] = {
    "moveahead": ("MoveAhead", {"moveMagnitude": STEP_LENGTH}),
    "moveback": ("MoveBack", {"moveMagnitude": STEP_LENGTH}),
    "moveright": ("MoveRight", {"moveMagnitude": STEP_LENGTH}),
    "moveleft": ("MoveLeft", {"moveMagnitude": STEP_LENGTH}),
    "rotateright": ("RotateRight", {"degrees": TURN}),
    "rotateleft": ("RotateLeft", {"degrees": TURN}),
    "lookup": ("LookUp", {"degrees": TILT}),
    "lookdown": ("LookDown", {"degrees": TILT}),
}
"""AI2-THOR's name and arguments per action."""
DRIFT = 0.01
"""Largest difference between poses after re-execution, metres and degrees."""

Outcome = tuple[bool, Pose]
"""Whether the action succeeded, and the pose after it."""


class ThorWorld(SimulatorWorld[ThorProcess, NavigationState, str, Outcome], World):
    """A scene of AI2-THOR; see the module docstring."""

    simulator = ThorProcess

    def __init__(self, start: Callable[[], ThorProcess] = ThorProcess) -> None:
        """Create a world; the simulator starts with the first ``load``."""
        super().__init__(start)

    @property
    def state(self) -> NavigationState:
        """The current state, with the simulator's pose."""
        first, (_, pose) = self._loaded
        return first.at(pose)

    def act(self, action: str) -> bool:
        """Execute an action; see the base class."""
        return self._act(action)[0]

    def frame_key(self) -> None:
        """Return None, because frames of equal states may differ."""
        return

    def _try_out(self) -> Frame:
        reading = self._running().step("Pass")
        if not reading.success:
            raise SimulatorError(f"it cannot execute the empty action: {reading.message}")
        return reading.frame

    def _enter(self, process: ThorProcess, state: NavigationState) -> Outcome:
        """Load the scene of a state and move the agent to its pose."""
        pose = state.pose
        process.reset(state.scene)
        reading = process.step(
            "Teleport",
            position={"x": pose.x, "y": pose.y, "z": pose.z},
            rotation={"x": 0, "y": pose.rotation, "z": 0},
            horizon=pose.horizon,
            standing=True,
        )
        if not reading.success:
            raise LevelError(
                f"the agent cannot stand at {pose} in {state.scene}: {reading.message or 'no reason given'}"
            )
        if not _near(reading.pose, pose):
            raise SimulatorError(f"AI2-THOR put the agent at {reading.pose} in {state.scene}, expected {pose}")
        return self._took(reading)

    def _execute(self, process: ThorProcess, action: str) -> Outcome:
        name, arguments = COMMANDS[action]
        return self._took(process.step(name, **arguments))

    def _look(self, process: ThorProcess) -> Frame:
        return process.step("Pass").frame

    def _took(self, reading: Reading) -> Outcome:
        self._frame = reading.frame
        return reading.success, reading.pose

    def _repeats(self, again: Outcome, before: Outcome) -> bool:
        return again[0] == before[0] and _near(again[1], before[1])


def _near(one: Pose, other: Pose) -> bool:
    """Return whether two poses are equal within :data:`DRIFT`, except for the height, which settles by itself."""
    turned = abs((one.rotation - other.rotation + 180) % 360 - 180)
    offsets = (one.x - other.x, one.z - other.z, turned, one.horizon - other.horizon)
    return all(abs(offset) <= DRIFT for offset in offsets)


assert set(COMMANDS) == set(ACTIONS)
