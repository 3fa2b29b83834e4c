"""ManiSkill in a child process: every call has a deadline, and a process that misses it is terminated.

A run therefore never imports torch, and survives a simulator or graphics driver that hangs or crashes. The process uses
the interpreter of the run; see ``worker.py``.
"""

from collections.abc import Sequence
from typing import Any

from ....core.processes import seconds
from ...simulators import SimulatorProcess

START_SECONDS, STEP_SECONDS = "PIVOT_MANISKILL_START_SECONDS", "PIVOT_MANISKILL_STEP_SECONDS"
"""Environment variables that set the deadlines of start-up and first picture, and of every other call."""


class ManiSkillProcess(SimulatorProcess):
    """A ManiSkill process with one table."""

    name = "ManiSkill"
    backend = "maniskill"
    advice = {  # noqa: RUF012
        "start": (
            "it renders with Vulkan, on a GPU or with Mesa's lavapipe, version 23 or newer "
            "(Debian 12: apt-get install -t bookworm-backports mesa-vulkan-drivers libvulkan1)"
        )
    }

    def __init__(self, physics: str, command: Sequence[str] | None = None) -> None:
        """Start the process; tests replace it by ``command``.

        Raises:
            ConfigError: a deadline is not a number.
            SimulatorError: ManiSkill is not installed, does not work here, did not start in time, or died.
        """
        self._start_seconds, self._step_seconds = seconds(START_SECONDS, 300), seconds(STEP_SECONDS, 60)
        super().__init__(f"{__package__}.worker", physics, command=command)
        self._drawn = False
        self._request({"do": "start"}, self._start_seconds)

    def load(self, state: str, camera: str) -> dict[str, Any]:
        """Load a state text, seen by a camera of ``world.py``; return the scene."""
        return self._request({"do": "load", "state": state, "camera": camera}, self._step_seconds)[0]

    def execute(self, primitive: str) -> dict[str, Any]:
        """Execute a primitive; return the scene."""
        return self._request({"do": "execute", "primitive": primitive}, self._step_seconds)[0]

    def draw(self) -> tuple[dict[str, Any], bytes]:
        """Return the picture's metadata and its pixels. The first picture compiles the shaders."""
        picture = self._request({"do": "draw"}, self._step_seconds if self._drawn else self._start_seconds)
        self._drawn = True
        return picture
