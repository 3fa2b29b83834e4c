"""A stand-in for AI2-THOR's controller that speaks the interface of the real class and gives real ``Event`` objects.

It walks in an empty scene with a wall, draws a picture that depends on the pose, and breaks on demand: at a numbered
call it hangs, raises what the real one raises, or gives back half an event. A :class:`StandInProcess` asks it in place
of the child process that holds the real one: what the child answers and what the parent makes of it is the same code.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai2thor.exceptions import RestartError
from ai2thor.server import Event
from pivot.core.errors import SimulatorError
from pivot.core.processes import seconds
from pivot.environments.navigation.thor.process import START_SECONDS, STEP_SECONDS, ThorProcess
from pivot.environments.navigation.thor.worker import Thor
from pivot.environments.simulators import Answer

SCENES = {"FloorPlan11_physics", "FloorPlan12_physics"}
WALL = 2.01
"""Nobody gets beyond this in x or z, metres."""
MOVES = {"MoveAhead": 0, "MoveRight": 90, "MoveBack": 180, "MoveLeft": 270}

Fault = Callable[["StandInController", str], Any]


class StandInUnity:
    """A Unity stand-in that starts processes whose controllers fail as planned.

    ``faults`` maps the number of a call, counted over all controllers from 0, to what happens in it; ``starts`` are the
    faults of the starts.
    """

    def __init__(self, faults: dict[int, Fault] | None = None, *, starts: Sequence[Fault | None] = ()) -> None:
        self.faults = faults or {}
        self.starts: Sequence[Fault | None] = starts
        self.controllers: list[StandInController] = []
        self.calls = 0
        self.limits: set[tuple[str, float]] = set()

    def __call__(self) -> "StandInProcess":
        return StandInProcess(self)

    @property
    def alive(self) -> int:
        return sum(not controller.killed for controller in self.controllers)


class HangError(Exception):
    """An error in place of a call that would never return."""


class StandInProcess(ThorProcess):
    """Holds a controller in this process."""

    def __init__(self, unity: StandInUnity) -> None:
        self.controller = StandInController(unity)
        self._thor = Thor(self.controller)
        unity.controllers.append(self.controller)
        self._step_seconds = seconds(STEP_SECONDS, 60)
        self._request({"do": "start"}, seconds(START_SECONDS, 600))

    def end(self) -> None:
        self.controller.killed = True

    def _request(self, request: Answer, limit: float) -> tuple[Answer, bytes]:
        what = str(request.get("action") or request["do"])
        self.controller.unity.limits.add((str(request["do"]), limit))
        try:
            if request["do"] == "start":
                self.controller.begin()
                return {"ready": True}, b""
            answer, pixels = self._thor.answer(json.loads(json.dumps(request)))
        except HangError:
            self.end()
            raise SimulatorError(f"AI2-THOR did not answer {what!r} within {limit:g} s and was ended") from None
        except Exception as error:
            self.end()
            raise SimulatorError(f"AI2-THOR failed at {what!r}: {type(error).__name__}: {error}") from error
        return json.loads(json.dumps(answer)), pixels


class StandInController:
    """The two methods of ``ai2thor.controller.Controller`` that are used, with its signatures and its errors."""

    scenes_in_build = SCENES

    def __init__(self, unity: StandInUnity) -> None:
        self.unity = unity
        self.killed = False
        self.scene = "FloorPlan1_physics"
        self.pose = [0.0, 0.9, 0.0, 0.0, 0.0]

    def begin(self) -> None:
        unity = self.unity
        fault, unity.starts = (unity.starts[0], unity.starts[1:]) if unity.starts else (None, ())
        if fault is not None:
            fault(self, "start")

    @staticmethod
    def normalize_scene(scene: str) -> str:
        return f"{scene}_physics"

    def reset(self, scene: str | None = None, **init_params: Any) -> Event:
        del init_params
        if (actual := self._fault(f"reset {scene}")) is not None:
            return actual
        assert scene is not None
        self.scene, self.pose = scene, [0.25, 0.9, 0.25, 0.0, 0.0]
        return self.event("Initialize", True)

    def step(self, action: str | dict[str, Any] | None = None, **action_args: Any) -> Event:
        assert isinstance(action, str)
        if (actual := self._fault(action)) is not None:
            return actual
        return self.event(action, self._execute(action, action_args))

    def _fault(self, what: str) -> Any:
        assert not self.killed, "a controller was used after its end"
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
        """Return the event of an action: the real class, filled as the server does."""
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


# Faults of a call


def raising(error: Callable[[], BaseException]) -> Fault:
    def fault(controller: StandInController, what: str) -> Any:
        raise error()

    return fault


hang = raising(HangError)
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


__all__ = ["Fault", "StandInController", "StandInProcess", "StandInUnity"]
