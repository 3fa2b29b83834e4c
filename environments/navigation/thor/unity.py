"""The one place that talks to AI2-THOR's Unity program; everything else about that backend runs without it.

A controller is made with the settings of the published navigation tasks, rendering on a GPU without a display. Nothing
here can be tried out without a Unity build, which ``ai2thor`` downloads at its first start (about 800 MB).
"""

import os
import signal
from contextlib import suppress
from typing import Any

SIDE = 255
"""Width and height of frames, pixels."""
FIELD_OF_VIEW = 100
"""Degrees."""
GRID_SIZE = 0.1
VISIBILITY_DISTANCE = 10
"""Metres."""

EXECUTABLE, GPU = "PIVOT_THOR_EXECUTABLE", "PIVOT_THOR_GPU"
"""Environment variables: a Unity build to start in place of the downloaded one, and which GPU draws."""


def new_controller() -> Any:
    """Return a controller that has not started yet, so that it can be ended while it hangs in its own start.

    Raises:
        ImportError: ``ai2thor`` is not installed.
    """
    from ai2thor.controller import Controller  # noqa: PLC0415 - an optional package

    return Controller.__new__(Controller)


def start(controller: Any, step_seconds: float, start_seconds: float) -> None:
    """Start Unity behind a controller of :func:`new_controller`; raises whatever AI2-THOR raises."""
    from ai2thor.platform import CloudRendering  # noqa: PLC0415

    initialise: Any = type(controller).__init__
    extra: dict[str, Any] = {}
    if executable := os.environ.get(EXECUTABLE):
        extra["local_executable_path"] = executable
    if gpu := os.environ.get(GPU):
        extra["gpu_device"] = int(gpu)
    initialise(
        controller,
        platform=CloudRendering,
        width=SIDE,
        height=SIDE,
        server_timeout=step_seconds,
        server_start_timeout=start_seconds,
        agentMode="default",
        gridSize=GRID_SIZE,
        visibilityDistance=VISIBILITY_DISTANCE,
        fieldOfView=FIELD_OF_VIEW,
        renderDepthImage=False,
        renderInstanceSegmentation=False,
        **extra,
    )


def kill(controller: Any) -> None:
    """End the Unity process of a controller in whatever state it is; never raises, never waits for Unity."""
    process = getattr(getattr(controller, "server", None), "unity_proc", None)
    pid = getattr(process, "pid", None) or getattr(controller, "unity_pid", None)
    if pid:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if process is not None:
        with suppress(Exception):
            process.wait(timeout=5)  # killed already; this only collects it
