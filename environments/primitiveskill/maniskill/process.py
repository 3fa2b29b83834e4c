"""ManiSkill in a process of its own: every call has a deadline, and a process that misses one is ended.

So a run never imports torch, a simulator that hangs or dies costs an error and not the run, and the pictures' driver
cannot take the run along. The process is started with the interpreter of the run; see ``worker.py``.
"""

from collections.abc import Sequence
from typing import Any

from ....processes import seconds
from ...simulators import SimulatorProcess

START_SECONDS, STEP_SECONDS = "PIVOT_MANISKILL_START_SECONDS", "PIVOT_MANISKILL_STEP_SECONDS"
"""Environment variables of the two deadlines: until ManiSkill is up or has drawn its first picture, and any other."""


class ManiSkillProcess(SimulatorProcess):
    """One process with one table."""

    name = "ManiSkill"
    backend = "maniskill"
    advice = {  # noqa: RUF012
        "start": (
            "it draws with Vulkan, on a GPU or with Mesa's lavapipe, version 23 or newer "
            "(Debian 12: apt-get install -t bookworm-backports mesa-vulkan-drivers libvulkan1)"
        )
    }

    def __init__(self, physics: str, command: Sequence[str] | None = None) -> None:
        """Start the process; ``command`` replaces the one that is started (tests give another one).

        Raises:
            ConfigError: a deadline is not a number.
            SimulatorError: ManiSkill is not installed or cannot be used here, did not come up in time, or died.
        """
        self._start_seconds, self._step_seconds = seconds(START_SECONDS, 300), seconds(STEP_SECONDS, 60)
        super().__init__(f"{__package__}.worker", physics, command=command)
        self._drawn = False
        self._request({"do": "start"}, self._start_seconds)

    def load(self, state: str) -> dict[str, Any]:
        """Load a state text; return the scene."""
        return self._request({"do": "load", "state": state}, self._step_seconds)[0]

    def execute(self, primitive: str) -> dict[str, Any]:
        """Execute a primitive; return the scene."""
        return self._request({"do": "execute", "primitive": primitive}, self._step_seconds)[0]

    def draw(self) -> tuple[dict[str, Any], bytes]:
        """Return what is said about the picture, and its pixels. The first picture compiles the shaders."""
        picture = self._request({"do": "draw"}, self._step_seconds if self._drawn else self._start_seconds)
        self._drawn = True
        return picture


__all__ = ["START_SECONDS", "STEP_SECONDS", "ManiSkillProcess"]
