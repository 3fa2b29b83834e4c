"""AI2-THOR in a child process: every call has a deadline; a process that misses it is terminated with its Unity.

AI2-THOR can hang without a display, also where its own time-outs do not apply (opening a pipe to a program that never
started). No call waits for it longer than its deadline. See ``worker.py``.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.errors import LevelError, SimulatorError
from ....core.images import Frame
from ....core.processes import seconds
from ...simulators import Answer, SimulatorProcess, one_line
from ..state import Pose
from .worker import EXECUTABLE

START_SECONDS, STEP_SECONDS = "PIVOT_THOR_START_SECONDS", "PIVOT_THOR_STEP_SECONDS"
DOWNLOAD_SECONDS = "PIVOT_THOR_DOWNLOAD_SECONDS"
"""Environment variables that set the deadlines."""
SCENE = 10
"""Deadline of a scene change, as a multiple of the deadline of a step."""

_log = logging.getLogger(__name__)


class Reading(NamedTuple):
    """AI2-THOR's answer to an action; the message says why it failed."""

    success: bool
    pose: Pose
    message: str
    frame: Frame


class ThorProcess(SimulatorProcess):
    """An AI2-THOR controller with its Unity process."""

    name = "AI2-THOR"
    backend = "thor"
    advice = {  # noqa: RUF012
        "download": (
            "AI2-THOR downloads its Unity build at its first start: connect this machine to the network, or set "
            f"{EXECUTABLE}=/path/to/executable to use a local build"
        ),
        "start": "AI2-THOR needs a GPU with Vulkan and its Unity build, see the page on running PIVOT",
    }

    def __init__(self, command: Sequence[str] | None = None) -> None:
        """Start a controller; ``command`` replaces the child process that is started.

        Raises:
            ConfigError: a deadline is not a number.
            SimulatorError: ``ai2thor`` is not installed, or it did not start before the deadline.
        """
        self._step_seconds = seconds(STEP_SECONDS, 60)
        start_seconds, download_seconds = seconds(START_SECONDS, 600), seconds(DOWNLOAD_SECONDS, 7200)
        super().__init__(f"{__package__}.worker", command=command)
        build, _ = self._request({"do": "find"}, start_seconds)
        if not build["present"]:
            # A warning, so that users see it: the download takes minutes without other output.
            _log.warning(
                "downloading AI2-THOR's Unity build (about 800 MB, once) from %s; given up after %g s (%s)",
                build["url"],
                download_seconds,
                DOWNLOAD_SECONDS,
            )
            self._request({"do": "download"}, download_seconds)
        self._request({"do": "start"}, start_seconds)

    def reset(self, scene: str) -> Reading:
        """Load a scene.

        Raises:
            SimulatorError: AI2-THOR returned no event; the process is terminated.
            LevelError: the scene does not exist.
        """
        answer, pixels = self._request({"do": "reset", "scene": scene}, SCENE * self._step_seconds)
        if "refused" in answer:
            raise LevelError(f"scene {scene!r} cannot be loaded: {one_line(answer['refused'])}")
        return _reading(answer, pixels)

    def step(self, action: str, **arguments: Any) -> Reading:
        """Execute an action of AI2-THOR, which may succeed or fail.

        Raises:
            SimulatorError: AI2-THOR returned no event; the process is terminated.
        """
        return _reading(*self._request({"do": "step", "action": action, "arguments": arguments}, self._step_seconds))


def _reading(answer: Answer, pixels: bytes) -> Reading:
    try:
        frame = np.frombuffer(pixels, np.uint8).reshape(answer["picture"])
        return Reading(answer["success"], Pose(*answer["pose"]), one_line(answer["message"]), frame)
    except (KeyError, TypeError, ValueError) as error:
        raise SimulatorError(f"AI2-THOR's answer {str(answer)[:200]} is malformed: {error}") from error
