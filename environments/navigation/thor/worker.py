"""Child process that runs AI2-THOR; the only module that communicates with its Unity program.

:mod:`~pivot.environments.navigation.thor.process` starts it with ``python -m``. The controller has the settings of the
published navigation tasks and renders on a GPU without a display. AI2-THOR may block here without limit: the parent
enforces the deadlines and terminates this process together with Unity.
"""

import math
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from ...simulators import Answer, serve
from ..view.scene import SIDE

SETTINGS = {
    "agentMode": "default",
    "gridSize": 0.1,
    "visibilityDistance": 10,
    "fieldOfView": 100,
    "renderDepthImage": False,
    "renderInstanceSegmentation": False,
}
"""Settings of the controller; metres and degrees."""
EXECUTABLE, GPU = "PIVOT_THOR_EXECUTABLE", "PIVOT_THOR_GPU"
"""Environment variables: path of a Unity build to start instead of the downloaded one, and number of the GPU."""
FOREVER = 1e6
"""Time-out for AI2-THOR, seconds: practically infinite, because the parent enforces deadlines."""
_LOOK, _LAST_WORDS = 0.1, 0.5  # seconds: between checks of Unity, and for AI2-THOR to report its end itself


class Thor:
    """Server of the parent's requests, with one controller."""

    def __init__(self, controller: Any = None) -> None:
        """Create the server without starting a controller; tests pass one."""
        self._controller = controller

    def answer(self, request: Answer) -> tuple[Answer, bytes]:
        """Answer a request of the parent; exceptions of AI2-THOR become answers."""
        what = request["do"]
        if what == "find":
            return _find_build(), b""
        if what == "download":
            _release().download()
            return {"ready": True}, b""
        if what == "start":
            self._controller = _start()
            return {"ready": True}, b""
        controller = self._controller
        if what == "step":
            return read_event(controller.step(action=request["action"], **request["arguments"]))
        scene, scenes = request["scene"], controller.scenes_in_build
        if scenes and controller.normalize_scene(scene) not in scenes:
            return {"refused": "the scene does not exist in this build"}, b""
        return read_event(controller.reset(scene=scene))


def _release() -> Any:
    """Return AI2-THOR's description of the Unity build of the installed package."""
    from ai2thor.build import COMMIT_ID, Build  # noqa: PLC0415 - a missing AI2-THOR is an answer, not a crash
    from ai2thor.controller import Controller  # noqa: PLC0415
    from ai2thor.platform import CloudRendering  # noqa: PLC0415

    return Build(CloudRendering, COMMIT_ID, False, Controller.__new__(Controller).releases_dir)


def _find_build() -> Answer:
    """Return whether a Unity build is on this machine, and the address to download it from otherwise."""
    release = _release()
    if not (executable := os.environ.get(EXECUTABLE)):
        return {"present": Path(release.base_dir).is_dir(), "url": release.url}
    if not (Path(executable).is_file() and os.access(executable, os.X_OK)):
        raise FileNotFoundError(f"{EXECUTABLE} is {executable!r}, expected an executable file")
    return {"present": True}


def _start() -> Any:
    """Start Unity and return its controller."""
    import shlex  # noqa: PLC0415

    from ai2thor.controller import Controller  # noqa: PLC0415
    from ai2thor.platform import CloudRendering  # noqa: PLC0415

    class Headless(Controller):
        def start(self, *arguments: Any, **settings: Any) -> Any:
            if self.last_event is not None:
                raise RuntimeError("Unity crashed; the parent restarts it")
            build: Any = self._build
            build.platform = CloudRendering  # AI2-THOR assumes that an external build needs a display
            return super().start(*arguments, **settings)

    extra: dict[str, Any] = {}
    if executable := os.environ.get(EXECUTABLE):
        extra["local_executable_path"] = shlex.quote(executable)  # AI2-THOR inserts it into a command line
    if gpu := os.environ.get(GPU):
        if not gpu.isdecimal():
            raise ValueError(f"{GPU} is {gpu!r}, expected the number of a GPU")
        extra["gpu_device"] = int(gpu)
    controller = Headless.__new__(Headless)
    threading.Thread(target=_end_with_unity, args=[controller], daemon=True).start()
    # Without a time-out, AI2-THOR also notices that Unity closed its pipe.
    Headless.__init__(
        controller,
        platform=CloudRendering,
        width=SIDE,
        height=SIDE,
        server_timeout=None,
        server_start_timeout=FOREVER,
        **SETTINGS,
        **extra,
    )
    return controller


def _end_with_unity(controller: Any) -> None:
    """End this process soon after Unity ends, because AI2-THOR may wait forever for a program that never started."""
    process: Any = None
    while process is None:
        time.sleep(_LOOK)
        process = getattr(getattr(controller, "server", None), "unity_proc", None)
    while process.poll() is None:
        time.sleep(_LOOK)
    time.sleep(_LAST_WORDS)
    sys.stderr.write(f"Unity ended with status {process.returncode}\n")
    sys.stderr.flush()
    os._exit(1)


def read_event(event: Any) -> tuple[Answer, bytes]:
    """Return success, pose, message and frame of an event.

    Raises:
        ValueError: a field is missing or has a wrong type or shape.
    """
    try:
        metadata = event.metadata
        agent = metadata["agent"]
        pose = [agent["position"][axis] for axis in "xyz"] + [agent["rotation"]["y"], agent["cameraHorizon"]]
        success = metadata["lastActionSuccess"]
        # A multi-agent event has no frame; its first event is that of the active agent.
        frame = event.events[metadata.get("agentId", 0)].frame
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"AI2-THOR's event lacks {error}") from error
    good = all(isinstance(value, int | float) and math.isfinite(value) for value in pose)
    if not good or not isinstance(success, bool):
        raise ValueError(f"AI2-THOR's event has the pose {pose} and success {success!r}")
    if not isinstance(frame, np.ndarray) or frame.shape != (SIDE, SIDE, 3) or frame.dtype != np.uint8:
        shape = getattr(frame, "shape", None), str(getattr(frame, "dtype", type(frame).__name__))
        raise ValueError(f"AI2-THOR's frame is {shape}, expected {SIDE}x{SIDE} RGB bytes")
    answer = {
        "success": success,
        "pose": [float(value) for value in pose],
        "message": str(metadata.get("errorMessage") or ""),
        "picture": list(frame.shape),
    }
    return answer, frame.tobytes()


if __name__ == "__main__":
    serve(Thor().answer)
