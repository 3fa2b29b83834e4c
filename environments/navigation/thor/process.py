"""A controller under guard: every call has a deadline, and a controller that misses one is ended with its Unity.

AI2-THOR is known to hang without a display, also where its own timeouts do not reach (opening a pipe to a program that
never came up). Calls therefore run in a thread of their own that nobody waits for longer than allowed.
"""

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ....errors import ConfigError, SimulatorError
from ....processes import seconds
from . import unity as real_unity

Result = TypeVar("Result")

START_SECONDS, STEP_SECONDS = "PIVOT_THOR_START_SECONDS", "PIVOT_THOR_STEP_SECONDS"
"""Environment variables of the two deadlines."""
GRACE = 5.0
"""Seconds that AI2-THOR's own timeouts come before ours: its errors say more."""


class Unity(Protocol):
    """What is needed of the module that knows Unity; tests give another one."""

    def new_controller(self) -> Any:
        """Return a controller that has not started."""
        ...

    def start(self, controller: Any, step_seconds: float, start_seconds: float) -> None:
        """Start it."""
        ...

    def kill(self, controller: Any) -> None:
        """End it."""
        ...


class ThorProcess:
    """One controller with its Unity process."""

    def __init__(self, unity: Unity | None = None) -> None:
        """Start a controller.

        Raises:
            ConfigError: ``ai2thor`` is not installed, or a deadline is not a number.
            SimulatorError: it did not start, or not in time.
        """
        self._unity: Unity = unity if unity is not None else real_unity  # pyright: ignore[reportAttributeAccessIssue]
        self._step_seconds = seconds(STEP_SECONDS, 60)
        start_seconds = seconds(START_SECONDS, 600)
        try:
            self.controller = self._unity.new_controller()
        except ImportError as error:
            raise ConfigError(
                f"the backend thor needs ai2thor ({error}); install it with: pip install 'pivot-vlm[thor]'"
            ) from error
        self._guard(
            "start", start_seconds, lambda: self._unity.start(self.controller, self._step_seconds, start_seconds)
        )

    def reset(self, scene: str) -> Any:
        """Load a scene and return the event; see :meth:`step`. A scene takes as long as ten steps may.

        Raises:
            SimulatorError: no event came back; the controller is then ended.
            ValueError: there is no such scene.
        """
        return self._guard(f"reset to {scene}", 10 * self._step_seconds, lambda: self.controller.reset(scene=scene))

    def step(self, action: str, **arguments: Any) -> Any:
        """Execute an action of AI2-THOR and return its event, of success or failure.

        Raises:
            SimulatorError: no event came back; the controller is then ended.
        """
        return self._guard(
            action, self._step_seconds, lambda: self.controller.step(action=action, **arguments), refused=SimulatorError
        )

    def end(self) -> None:
        """End controller and Unity."""
        self._unity.kill(self.controller)

    def _guard(
        self,
        what: str,
        limit: float,
        call: Callable[[], Result],
        refused: Callable[[str], Exception] = ValueError,
    ) -> Result:
        """Call in a thread; end the controller when it raises or is not done in time."""
        results: list[Result] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:  # noqa: BLE001 - whatever it is, the caller hears of it
                errors.append(error)
            finally:
                done.set()

        # A daemon: a call that never returns must not keep the process from ending.
        threading.Thread(target=work, name=f"ai2thor {what}", daemon=True).start()
        if not done.wait(limit + GRACE):
            self.end()
            raise SimulatorError(f"AI2-THOR did not answer {what!r} within {limit:g} s and was ended")
        if not errors:
            return results[0]
        error = errors[0]
        if what != "start" and isinstance(error, ValueError):
            # AI2-THOR is well; it refused a scene or an action that it does not know.
            raise refused(f"AI2-THOR refused {what!r}: {_one_line(error)}") from error
        self.end()
        raise SimulatorError(f"AI2-THOR failed at {what!r}: {type(error).__name__}: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


__all__ = ["START_SECONDS", "STEP_SECONDS", "ThorProcess", "Unity"]
