"""Simulators in child processes, and worlds that survive the loss of such a process.

A simulator may hang, crash or return garbage, and must not cost more than one episode. It therefore runs in a child
process that answers requests: JSON in both directions, and pixels after an answer with the key ``picture``. Every
request has a deadline; a process that misses it is terminated (:class:`SimulatorProcess`; :func:`serve` runs in the
child).

A world (:class:`SimulatorWorld`) starts the process at the first request. If the process is lost, the world starts
another one, loads the same initial state, re-executes the actions, and checks that each has the same outcome; the
episode continues as if nothing had happened. After too many losses the episode ends in an error, keeps its steps and
stays pending for the next run. A simulator that has never started in this interpreter is a configuration error.
"""

import json
import logging
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..core.errors import ConfigError, LevelError, SimulatorError
from ..core.images import Frame
from ..core.processes import Child, read_part, write_part
from .backends import World

RESTARTS = 2
"""Maximum number of process restarts within one episode."""

Answer = dict[str, Any]

_log = logging.getLogger(__name__)


class SimulatorProcess:
    """A simulator in a child process; subclasses define its requests."""

    name: ClassVar[str]
    backend: ClassVar[str]
    """Value of the setting ``backend``, and name of the extra that installs the simulator."""
    advice: ClassVar[Mapping[str, str]] = {}
    """Advice for the user per request that can fail."""

    def __init__(self, module: str, *arguments: str, command: Sequence[str] | None = None) -> None:
        """Start the module, or ``command`` in its place."""
        # -P: Python must not import modules from the user's current folder.
        self._child = Child(command or [sys.executable, "-P", "-m", module, *arguments], self.name, SimulatorError)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def end(self) -> None:
        """Terminate the process and its children."""
        self._child.end()

    def _request(self, request: Answer, limit: float) -> tuple[Answer, bytes]:
        """Send a request; return its answer and the pixels after it. Any failure terminates the process.

        Raises:
            SimulatorError: there was no answer in time, the process died, its answer is malformed or reports a failure.
        """
        what = str(request.get("action") or request["do"])
        try:
            with self._child.guard(what, limit) as deadline:
                self._child.write_part(json.dumps(request).encode(), deadline)
                answer = self._checked(what, self._child.read_part(deadline))
                return answer, self._child.read_part(deadline) if "picture" in answer else b""
        except SimulatorError as error:
            if advice := self.advice.get(what):
                raise SimulatorError(f"{error}; {advice}") from error
            raise

    def _checked(self, what: str, part: bytes) -> Answer:
        try:
            answer = json.loads(part)
        except (ValueError, RecursionError) as error:
            raise SimulatorError(f"{self.name} answered {part[:60]!r} to {what!r}, expected JSON") from error
        if not isinstance(answer, dict):
            raise SimulatorError(f"{self.name} answered {str(answer)[:60]!r} to {what!r}, expected an object")
        if "missing" in answer:
            raise SimulatorError(
                f"the backend {self.backend} needs {self.name} ({one_line(answer['missing'])}); install it with: "
                f"pip install 'pivot-vlm[{self.backend}]'"
            )
        if "failed" in answer:
            raise SimulatorError(f"{self.name} failed at {what!r}: {one_line(answer['failed'])}")
        return answer


def one_line(text: object) -> str:
    """Return a message as one line of at most 600 characters."""
    return " ".join(str(text).split())[:600]


def serve(answer_to: Callable[[Answer], tuple[Answer, bytes]]) -> None:
    """Answer the parent's requests until it closes the pipe; called in the child process.

    If a request fails, the answer is the error (under the key ``missing`` for a failed import, else ``failed``) and
    the process ends. Output of libraries goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (part := read_part(sys.stdin.buffer)) is not None:
        try:
            answer, pixels = answer_to(json.loads(part))
        except Exception as error:
            first: BaseException = error
            while first.__context__ is not None:
                first = first.__context__
            text = "; ".join(dict.fromkeys(f"{type(each).__name__}: {each}" for each in (first, error)))
            write_part(answers, json.dumps({"missing" if isinstance(error, ImportError) else "failed": text}).encode())
            raise
        write_part(answers, json.dumps(answer).encode())
        if "picture" in answer:
            write_part(answers, pixels)


class _State(Protocol):
    @property
    def backend(self) -> str: ...


Process = TypeVar("Process", bound=SimulatorProcess)
State = TypeVar("State", bound=_State)
Action = TypeVar("Action")
Outcome = TypeVar("Outcome")
Result = TypeVar("Result")


class SimulatorWorld(World[State], Generic[Process, State, Action, Outcome]):
    """A world in a simulator; see the module docstring. Outcomes of re-executed actions are compared."""

    simulator: ClassVar[type[SimulatorProcess]]
    has_started: ClassVar[bool] = False
    """Whether a process of this kind ever started in this interpreter."""

    def __init__(self, start: Callable[[], Process]) -> None:
        """Create a world; it calls ``start`` when it needs a process."""
        self._start = start
        self._process: Process | None = None
        self._up_to_date = False  # whether the process has executed all of self._done
        self._restarts = 0
        self._first: State | None = None
        self._done: list[tuple[Action, Outcome]] = []  # since the first state
        self._now: Outcome | None = None
        self._frame: Frame | None = None  # frame of the current state, if rendered

    @abstractmethod
    def _enter(self, process: Process, state: State) -> Outcome:
        """Load a state into a process.

        Raises:
            LevelError: the state cannot be loaded.
        """

    @abstractmethod
    def _execute(self, process: Process, action: Action) -> Outcome:
        """Execute an action."""

    @abstractmethod
    def _repeats(self, again: Outcome, before: Outcome) -> bool:
        """Return whether a re-executed action has the same outcome."""

    @abstractmethod
    def _look(self, process: Process) -> Frame:
        """Return a picture; called if the last action did not return one."""

    @abstractmethod
    def _try_out(self) -> Frame:
        """Use every feature of the simulator once and return a picture.

        Raises:
            SimulatorError, ConfigError: a feature does not work.
        """

    def check(self) -> str:
        """Test the simulator and terminate it; return a one-line summary.

        Raises:
            ConfigError: the simulator does not work on this machine.
        """
        name = self.simulator.name
        try:
            frame = self._try_out()
        except SimulatorError as error:
            raise ConfigError(f"{name} does not work: {error}") from error
        finally:
            self.close()
        if int(frame.max()) - int(frame.min()) < 8:
            raise ConfigError(f"{name} runs, but draws one flat colour; check the Vulkan driver with vulkaninfo")
        return f"{name} draws {frame.shape[1]}x{frame.shape[0]} frames"

    def load(self, state: State) -> None:
        """Load a state; see the base class.

        Raises:
            LevelError: the state cannot be loaded or belongs to a different backend.
            ConfigError: the simulator does not start, and never has in this interpreter.
            SimulatorError: the simulator failed, also after :data:`RESTARTS` restarts.
        """
        if state.backend != self.simulator.backend:
            raise LevelError(f"the state has backend {state.backend!r}, expected {self.simulator.backend!r}")
        self._restarts, self._up_to_date, self._frame = 0, False, None
        now = self._request(lambda process: self._enter(process, state), catch_up=False)
        self._first, self._done, self._now, self._up_to_date = state, [], now, True

    def _act(self, action: Action) -> Outcome:
        """Execute an action and record it for re-execution.

        Raises:
            SimulatorError: the simulator failed, also after :data:`RESTARTS` restarts.
        """
        _ = self._loaded  # raises before a process is started
        self._frame = None
        self._now = self._request(lambda process: self._execute(process, action), catch_up=True)
        self._done.append((action, self._now))
        return self._now

    def draw(self) -> Frame:
        """Return a picture of the current state; see the base class."""
        _ = self._loaded  # raises before a process is started
        if self._frame is None:
            self._frame = self._request(self._look, catch_up=True)
        return self._frame

    def close(self) -> None:
        """Terminate the process; the next request starts a new one."""
        if self._process is not None:
            self._process.end()
        self._process, self._up_to_date = None, False

    @property
    def _loaded(self) -> tuple[State, Outcome]:
        """The first state and the latest outcome."""
        if self._first is None or self._now is None:
            raise RuntimeError("no state has been loaded")
        return self._first, self._now

    def _request(self, request: Callable[[Process], Result], *, catch_up: bool) -> Result:
        """Send a request; if the process is lost, restart it and, with ``catch_up``, re-execute the episode first."""
        while True:
            try:
                process = self._running()
                if catch_up and not self._up_to_date:
                    self._catch_up(process)
                return request(process)
            except SimulatorError as error:
                self.close()
                if self._restarts == RESTARTS:
                    raise SimulatorError(f"given up after {RESTARTS} restarts: {error}") from error
                self._restarts += 1
                _log.warning("restart %d of %d in this episode: %s", self._restarts, RESTARTS, error)

    def _running(self) -> Process:
        if self._process is None:
            try:
                self._process = self._start()
            except SimulatorError as error:
                if self.has_started:
                    raise
                raise ConfigError(str(error)) from error
            type(self).has_started = True
        return self._process

    def _catch_up(self, process: Process) -> None:
        """Load the first state and re-execute the actions since then."""
        first, _ = self._loaded
        try:
            self._enter(process, first)
        except LevelError as error:
            raise SimulatorError(f"the restarted simulator refuses the initial state: {error}") from error
        for number, (action, before) in enumerate(self._done):
            again = self._execute(process, action)
            if not self._repeats(again, before):
                raise SimulatorError(f"action {number} ({action}) led to {again} when re-executed, before to {before}")
        self._up_to_date = True
