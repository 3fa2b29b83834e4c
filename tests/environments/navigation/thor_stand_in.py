"""A stand-in for AI2-THOR's controller that speaks the interface of the real class and gives real ``Event`` objects.

It walks in an empty scene with a wall, draws a picture that depends on the pose, and breaks on demand: at a numbered
call it hangs, raises what the real one raises, or gives back half an event.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai2thor.exceptions import RestartError
from ai2thor.server import Event, MultiAgentEvent

SCENES = {"FloorPlan11", "FloorPlan12"}
WALL = 2.01
"""Nobody gets beyond this in x or z, metres."""
MOVES = {"MoveAhead": 0, "MoveRight": 90, "MoveBack": 180, "MoveLeft": 270}

Fault = Callable[["StandInController", str], Any]


class StandInUnity:
    """What the module that knows Unity offers, with controllers that break as planned.

    ``faults`` maps the number of a call, counted over all controllers from 0, to what happens in it.
    """

    def __init__(self, faults: dict[int, Fault] | None = None, *, starts: Sequence[Fault | None] = ()) -> None:
        self.faults = faults or {}
        self.starts: Sequence[Fault | None] = starts
        self.controllers: list[StandInController] = []
        self.calls = 0
        self.settings: list[dict[str, float]] = []

    def new_controller(self) -> "StandInController":
        controller = StandInController.__new__(StandInController)
        controller.unity = self
        controller.killed = threading.Event()
        self.controllers.append(controller)
        return controller

    def start(self, controller: "StandInController", step_seconds: float, start_seconds: float) -> None:
        self.settings.append({"step": step_seconds, "start": start_seconds})
        fault, self.starts = (self.starts[0], self.starts[1:]) if self.starts else (None, ())
        if fault is not None:
            fault(controller, "start")
        controller.scene = "FloorPlan1"
        controller.pose = [0.0, 0.9, 0.0, 0.0, 0.0]

    def kill(self, controller: "StandInController") -> None:
        controller.killed.set()

    @property
    def alive(self) -> int:
        return sum(not controller.killed.is_set() for controller in self.controllers)


class StandInController:
    """The two methods of ``ai2thor.controller.Controller`` that are used, with its signatures and its errors."""

    unity: StandInUnity
    killed: threading.Event
    scene: str
    pose: list[float]

    def reset(self, scene: str | None = None, **init_params: Any) -> Event:
        del init_params
        if (found := self._fault(f"reset {scene}")) is not None:
            return found
        if scene not in SCENES:
            raise ValueError(f"\nScene '{scene}' not contained in build (scene names are case sensitive).")
        self.scene, self.pose = scene, [0.25, 0.9, 0.25, 0.0, 0.0]
        return self.event("Initialize", True)

    def step(self, action: str | dict[str, Any] | None = None, **action_args: Any) -> Event:
        assert isinstance(action, str)
        if (found := self._fault(action)) is not None:
            return found
        return self.event(action, self._execute(action, action_args))

    def _fault(self, what: str) -> Any:
        assert not self.killed.is_set(), "a controller was used after its end"
        number = self.unity.calls
        self.unity.calls += 1
        fault = self.unity.faults.get(number)
        return None if fault is None else fault(self, what)

    def _execute(self, action: str, arguments: dict[str, Any]) -> bool:
        x, y, z, yaw, horizon = self.pose
        if action == "Teleport":
            place = arguments["position"]
            if max(abs(place["x"]), abs(place["z"])) > WALL:
                return False
            self.pose = [place["x"], y, place["z"], arguments["rotation"]["y"], arguments["horizon"]]
        elif action in MOVES:
            angle, length = math.radians(yaw + MOVES[action]), arguments["moveMagnitude"]
            # As floats of a physics engine are: not quite on the grid.
            new = x + length * math.sin(angle) + 1e-7, z + length * math.cos(angle) - 1e-7
            if max(map(abs, new)) > WALL:
                return False
            self.pose[0], self.pose[2] = new
        elif action in ("RotateRight", "RotateLeft"):
            self.pose[3] = (yaw + (1 if action == "RotateRight" else -1) * arguments["degrees"]) % 360
        elif action in ("LookUp", "LookDown"):
            tilted = horizon + (1 if action == "LookDown" else -1) * arguments["degrees"]
            if not -30 <= tilted <= 60:
                return False
            self.pose[4] = tilted
        elif action != "Pass":
            raise ValueError(f"The action {action} is not known")
        return True

    def event(self, action: str, worked: bool) -> Event:
        """The event of an action: the real class, filled as the server fills it."""
        x, y, z, yaw, horizon = self.pose
        event = Event(
            {
                "screenWidth": 255,
                "screenHeight": 255,
                "agentId": 0,
                "sceneName": self.scene,
                "agent": {
                    "position": {"x": x, "y": y, "z": z},
                    "rotation": {"x": 0.0, "y": yaw, "z": 0.0},
                    "cameraHorizon": horizon,
                },
                "lastAction": action,
                "lastActionSuccess": worked,
                "errorCode": "" if worked else "Undefined",
                "errorMessage": "" if worked else "Wall is blocking Agent 0 from moving",
                "actionReturn": None,
                "objects": [],
                "colors": [],
                "colorBounds": [],
            }
        )
        rows, columns = np.mgrid[0:255, 0:255]
        shade = rows + columns + round(40 * x) + round(60 * z) + round(yaw) + round(horizon)
        event.frame = np.stack([shade, shade + 50, 255 - shade], axis=-1).astype(np.uint8)
        return event


# What can go wrong in a call


def hang(controller: StandInController, what: str) -> Any:
    """Never answer, until the process is ended from outside."""
    controller.killed.wait(60)
    raise TimeoutError(f"pipe closed during {what}")


def raising(error: Callable[[], BaseException]) -> Fault:
    def fault(controller: StandInController, what: str) -> Any:
        raise error()

    return fault


crash = raising(lambda: RestartError("Restarting unity due to crash"))
died = raising(lambda: RuntimeError("Error encountered when running action"))
timed_out = raising(lambda: TimeoutError("Reading from AI2-THOR backend timed out"))
broken_pipe = raising(lambda: BrokenPipeError(32, "Broken pipe"))
no_build = raising(lambda: ValueError("Invalid commit_id: f0825767 - no build exists for arch=Linux"))


def spoiled(spoil: Callable[[Event], Any]) -> Fault:
    """Answer with an event that was changed; the action itself is not executed."""

    def fault(controller: StandInController, what: str) -> Any:
        event = controller.event(what, True)
        return spoil(event) or event

    return fault


def without(*path: str) -> Fault:
    def spoil(event: Event) -> None:
        holder: Any = event.metadata
        for key in path[:-1]:
            holder = holder[key]
        del holder[path[-1]]

    return spoiled(spoil)


def with_frame(frame: Any) -> Fault:
    return spoiled(lambda event: setattr(event, "frame", frame))


def with_position(value: Any) -> Fault:
    return spoiled(lambda event: event.metadata["agent"]["position"].update(x=value))


def as_multi_agent(event: Event) -> MultiAgentEvent:
    return MultiAgentEvent(0, [event])


__all__ = ["Fault", "MultiAgentEvent", "StandInController", "StandInUnity"]
