"""Navigation in AI2-THOR: a world whose rooms, movement and pictures come from a Unity simulator.

A controller that hangs, dies or answers nonsense is ended, and another one is brought to the same moment: scene, start
pose, and the actions of the episode so far, each of which has to succeed or fail as before and lead to the same pose.
The episode's record never notices. Only when that fails, too, does the episode end in an error, with its steps so far.

Pictures of a GPU are not equal to the last bit, and physics may differ by less than a millimetre, so re-execution is
compared with a tolerance and frames are not (``NavigationConfig.repeats_exactly``).
"""

import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....errors import ConfigError, LevelError, SimulatorError
from ....images import Frame
from ..state import THOR, NavigationState, Pose
from ..world import ACTIONS, World
from .process import ThorProcess
from .unity import SIDE

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
"""AI2-THOR's name and arguments of each action."""
DRIFT = 0.01
"""Metres, and degrees, by which a pose may differ when the same actions are executed again."""
ATTEMPTS = 3
"""Controllers that are tried for one request before the episode is given up."""

_log = logging.getLogger(__name__)


class ThorWorld(World):
    """A scene of AI2-THOR; see the module docstring."""

    def __init__(self, start: Callable[[], ThorProcess] = ThorProcess) -> None:
        """Create a world; the controller starts with the first ``load``."""
        self._new_process = start
        self._process: ThorProcess | None = None
        self._started_before = False
        self._first: NavigationState | None = None
        self._done: list[tuple[str, bool, Pose]] = []  # since the first state: action, success, pose after it
        self._pose: Pose | None = None
        self._frame: Frame | None = None

    def load(self, state: NavigationState) -> None:
        """Go to a state; see the base class.

        Raises:
            LevelError: it is no state of AI2-THOR, or the simulator has no such scene or pose.
            ConfigError: the simulator cannot be started at all.
            SimulatorError: it was started before, and now fails again and again.
        """
        if state.backend != THOR:
            raise LevelError(f"the navigation state has backend {state.backend!r}; the one in use is {THOR!r}")
        self._repeat(lambda process: self._enter(process, state), replay=False)
        self._first, self._done = state, []

    @property
    def state(self) -> NavigationState:
        """The current state, with the simulator's pose."""
        if self._first is None or self._pose is None:
            raise RuntimeError("no state has been loaded")
        return self._first.at(self._pose)

    def act(self, action: str) -> bool:
        """Execute an action; see the base class.

        Raises:
            SimulatorError: the simulator failed, and so did every attempt to bring another one to this moment.
        """
        name, arguments = COMMANDS[action]
        worked = self._repeat(lambda process: self._take(process.step(name, **arguments)), replay=True)
        self._done.append((action, worked, self.state.pose))
        return worked

    def draw(self) -> Frame:
        """Return what the agent sees, from the last event."""
        if self._frame is None:
            raise RuntimeError("no state has been loaded")
        return self._frame

    def frame_key(self) -> None:
        """Frames of equal states may differ."""
        return

    def close(self) -> None:
        """End controller and Unity; the next ``load`` starts anew."""
        if self._process is not None:
            self._process.end()
        self._process = None

    def _repeat(self, request: Callable[[ThorProcess], Any], *, replay: bool) -> Any:
        """Make a request of the running controller, or of a new one that was brought to the same moment."""
        failure: SimulatorError | None = None
        for attempt in range(ATTEMPTS):
            try:
                fresh = self._process is None
                process = self._running()
                if fresh and replay and self._first is not None:
                    self._catch_up(process, self._first)
                return request(process)
            except SimulatorError as error:
                _log.warning("attempt %d of %d: %s", attempt + 1, ATTEMPTS, error)
                failure = error
                self.close()
        raise SimulatorError(f"given up after {ATTEMPTS} controllers: {failure}") from failure

    def _running(self) -> ThorProcess:
        if self._process is None:
            try:
                self._process = self._new_process()
            except SimulatorError as error:
                if self._started_before:
                    raise
                raise ConfigError(
                    f"{error}; AI2-THOR needs a GPU with Vulkan and its Unity build, see the page on running PIVOT"
                ) from error
            self._started_before = True
        return self._process

    def _enter(self, process: ThorProcess, state: NavigationState) -> None:
        """Load the scene of a state and put the agent at its pose."""
        pose = state.pose
        try:
            _reading(process.reset(state.scene))
        except ValueError as error:
            raise LevelError(f"scene {state.scene!r} cannot be loaded: {error}") from error
        event = process.step(
            "Teleport",
            position={"x": pose.x, "y": pose.y, "z": pose.z},
            rotation={"x": 0, "y": pose.rotation, "z": 0},
            horizon=pose.horizon,
            standing=True,
        )
        worked, found, frame = _reading(event)
        if not worked:
            raise LevelError(f"the agent cannot stand at {pose} in {state.scene}: {_message(event)}")
        if not _same(found, pose):
            raise SimulatorError(f"asked for {pose} in {state.scene}, AI2-THOR put the agent at {found}")
        self._pose, self._frame = found, frame

    def _catch_up(self, process: ThorProcess, first: NavigationState) -> None:
        """Execute the actions of the episode so far again."""
        self._enter(process, first)
        for t, (action, worked, pose) in enumerate(self._done):
            name, arguments = COMMANDS[action]
            again = self._take(process.step(name, **arguments))
            found = first.at(pose) if self._pose is None else first.at(self._pose)
            if again != worked or not _same(found.pose, pose):
                raise SimulatorError(
                    f"action {t} ({action}) executed again ended at {found.pose}, success {again}; at first it was "
                    f"{pose}, {worked}"
                )

    def _take(self, event: Any) -> bool:
        worked, self._pose, self._frame = _reading(event)
        return worked


def _reading(event: Any) -> tuple[bool, Pose, Frame]:
    """Return success, pose and frame of an event.

    Raises:
        SimulatorError: something of it is missing or is not what it should be.
    """
    try:
        metadata = event.metadata
        agent = metadata["agent"]
        values = [agent["position"][axis] for axis in "xyz"] + [agent["rotation"]["y"], agent["cameraHorizon"]]
        worked = metadata["lastActionSuccess"]
        # An event of several agents has no frame of its own; the active agent's is the first where there is one.
        frame = event.events[metadata.get("agentId", 0)].frame
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise SimulatorError(f"AI2-THOR's event lacks {error}") from error
    numbers = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    if len(numbers) != len(values) or not isinstance(worked, bool):
        raise SimulatorError(f"AI2-THOR's event has the pose {values} and success {worked!r}")
    if not isinstance(frame, np.ndarray) or frame.shape != (SIDE, SIDE, 3) or frame.dtype != np.uint8:
        found = getattr(frame, "shape", None), str(getattr(frame, "dtype", type(frame).__name__))
        raise SimulatorError(f"AI2-THOR's frame is {found}, expected {SIDE}x{SIDE} RGB bytes")
    x, y, z, rotation, horizon = (float(number) for number in numbers)
    return worked, Pose(x, y, z, rotation, horizon), np.ascontiguousarray(frame)


def _same(one: Pose, other: Pose) -> bool:
    """Whether two poses are equal but for what a simulator may be off; height settles by itself."""
    turned = abs((one.rotation - other.rotation + 180) % 360 - 180)
    offsets = (one.x - other.x, one.z - other.z, turned, one.horizon - other.horizon)
    return all(abs(offset) <= DRIFT for offset in offsets)


def _message(event: Any) -> str:
    return " ".join(str(event.metadata.get("errorMessage") or "no reason given").split())[:300]


def check_health(start: Callable[[], ThorProcess] = ThorProcess) -> str:
    """Start a controller, take one picture in its first scene, and end it; return what was found in one line.

    Raises:
        ConfigError: the simulator cannot be used here.
    """
    try:
        process = start()
        try:
            worked, pose, frame = _reading(process.step("Pass"))
        finally:
            process.end()
    except SimulatorError as error:
        raise ConfigError(f"AI2-THOR is not fit for a run: {error}") from error
    if not worked or int(frame.max()) - int(frame.min()) < 8:
        raise ConfigError("AI2-THOR runs, but draws one flat colour; check the GPU's Vulkan driver with vulkaninfo")
    return f"AI2-THOR draws {SIDE}x{SIDE} frames, agent at x {pose.x:.2f} z {pose.z:.2f} m"


assert set(COMMANDS) == set(ACTIONS)

__all__ = ["COMMANDS", "ThorWorld", "check_health"]
