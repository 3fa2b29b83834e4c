"""The child process that holds AI2-THOR: the one place that talks to its Unity program.

Started by :mod:`~pivot.environments.navigation.thor.process` as ``python -m``. A controller is made with the settings
of the published navigation tasks, rendering on a GPU without a display. AI2-THOR waits here as long as it likes: the
parent keeps the time, and ends this process together with Unity.
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
"""What Unity is told; metres and degrees."""
EXECUTABLE, GPU = "PIVOT_THOR_EXECUTABLE", "PIVOT_THOR_GPU"
"""Environment variables: a Unity build to start in place of the downloaded one, and which GPU draws."""
FOREVER = 1e6
"""Seconds, where AI2-THOR asks for a number."""
_LOOK, _LAST_WORDS = 0.1, 0.5  # seconds: between two looks at Unity, and for AI2-THOR to say itself that it ended


class Thor:
    """Answers requests with the help of one controller."""

    def __init__(self, controller: Any = None) -> None:
        """Start nothing yet; tests give a controller."""
        self._controller = controller

    def answer(self, request: Answer) -> tuple[Answer, bytes]:
        """Answer a request of the parent; what AI2-THOR raises is its answer, too."""
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
            return {"refused": "there is no such scene in this build"}, b""
        return read_event(controller.reset(scene=scene))


def _release() -> Any:
    """Return AI2-THOR's description of the Unity build that belongs to the installed package."""
    from ai2thor.build import COMMIT_ID, Build  # noqa: PLC0415 - a missing AI2-THOR is an answer, not a crash
    from ai2thor.controller import Controller  # noqa: PLC0415
    from ai2thor.platform import CloudRendering  # noqa: PLC0415

    return Build(CloudRendering, COMMIT_ID, False, Controller.__new__(Controller).releases_dir)


def _find_build() -> Answer:
    """Say whether there is a Unity build on this machine, and where else one comes from."""
    release = _release()
    if not (executable := os.environ.get(EXECUTABLE)):
        return {"present": Path(release.base_dir).is_dir(), "url": release.url}
    if not (Path(executable).is_file() and os.access(executable, os.X_OK)):
        raise FileNotFoundError(f"{EXECUTABLE} names {executable!r}, which is no file that can be run")
    return {"present": True}


def _start() -> Any:
    """Return a controller whose Unity has started."""
    import shlex  # noqa: PLC0415

    from ai2thor.controller import Controller  # noqa: PLC0415
    from ai2thor.platform import CloudRendering  # noqa: PLC0415

    class Headless(Controller):
        def start(self, *arguments: Any, **settings: Any) -> Any:
            if self.last_event is not None:
                raise RuntimeError("Unity crashed; starting another one is the parent's business")
            build: Any = self._build
            build.platform = CloudRendering  # of an external build AI2-THOR believes that it needs a display
            return super().start(*arguments, **settings)

    extra: dict[str, Any] = {}
    if executable := os.environ.get(EXECUTABLE):
        extra["local_executable_path"] = shlex.quote(executable)  # AI2-THOR makes a command line of it
    if gpu := os.environ.get(GPU):
        if not gpu.isdecimal():
            raise ValueError(f"{GPU} is {gpu!r}, expected the number of a GPU")
        extra["gpu_device"] = int(gpu)
    controller = Headless.__new__(Headless)
    threading.Thread(target=_end_with_unity, args=[controller], daemon=True).start()
    # Without a time-out of its own AI2-THOR also notices when Unity closes its pipe.
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
    """End this process soon after Unity: AI2-THOR may wait for a program that never came up."""
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
        ValueError: something of it is missing or is not what it should be.
    """
    try:
        metadata = event.metadata
        agent = metadata["agent"]
        pose = [agent["position"][axis] for axis in "xyz"] + [agent["rotation"]["y"], agent["cameraHorizon"]]
        success = metadata["lastActionSuccess"]
        # An event of several agents has no frame of its own; the active agent's is the first where there is one.
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
