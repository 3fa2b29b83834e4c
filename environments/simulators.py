"""Simulators in processes of their own, and worlds that outlive them.

A simulator may hang, die or answer nonsense, and none of that may cost more than an episode. So it runs in a child
process that answers requests: JSON each way, and after an answer that tells of a ``picture`` its pixels. Every request
has a deadline, and a process that misses it is ended (:class:`SimulatorProcess`; :func:`serve` is the child's side).

A world (:class:`SimulatorWorld`) starts the process when it is first needed. When that is lost it starts another one
and brings it to the same moment: the state that was loaded, and the actions since, each of which has to end as it did.
The episode's record never notices. Where that fails too often, the episode ends in an error with its steps so far, and
is owed. Only a simulator that has never started in this interpreter is an error of the configuration.
"""

import json
import logging
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..errors import ConfigError, LevelError, SimulatorError
from ..images import Frame
from ..processes import Child, read_part, write_part
from .backends import World

RESTARTS = 2
"""Processes that are started in place of lost ones within one episode, before it is given up."""

Answer = dict[str, Any]

_log = logging.getLogger(__name__)


class SimulatorProcess:
    """A simulator that answers requests; subclasses say which there are."""

    name: ClassVar[str]
    backend: ClassVar[str]
    """The setting that chooses it, and the extra that installs it."""
    advice: ClassVar[Mapping[str, str]] = {}
    """What to do about a request that failed."""

    def __init__(self, module: str, *arguments: str, command: Sequence[str] | None = None) -> None:
        """Start the module, or ``command`` in its place."""
        # -P: a file in the folder of the user must not be taken for a module.
        self._child = Child(command or [sys.executable, "-P", "-m", module, *arguments], self.name, SimulatorError)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def end(self) -> None:
        """End the process, and what it started."""
        self._child.end()

    def _request(self, request: Answer, limit: float) -> tuple[Answer, bytes]:
        """Send a request; return its answer and the pixels after it. Whatever else happens ends the process.

        Raises:
            SimulatorError: no answer in time, the process died, or its answer makes no sense or tells of a failure.
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
    """Return a message as one line of bearable length."""
    return " ".join(str(text).split())[:600]


def serve(answer_to: Callable[[Answer], tuple[Answer, bytes]]) -> None:
    """Answer the parent's requests until it is gone; for the child's side.

    What fails is answered with its error, ``missing`` where an import failed, and ends the process. Whatever libraries
    print goes to the standard error.
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
            said = "; ".join(dict.fromkeys(f"{type(each).__name__}: {each}" for each in (first, error)))
            write_part(answers, json.dumps({"missing" if isinstance(error, ImportError) else "failed": said}).encode())
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
    """A world in a simulator; see the module docstring. An outcome is what must be equal when an action is repeated."""

    simulator: ClassVar[type[SimulatorProcess]]
    has_started: ClassVar[bool] = False
    """Whether a process of this kind ever started in this interpreter."""

    def __init__(self, start: Callable[[], Process]) -> None:
        """Create a world; ``start`` is called when a process is needed."""
        self._start = start
        self._process: Process | None = None
        self._up_to_date = False  # whether the process is where the record ends
        self._restarts = 0
        self._first: State | None = None
        self._done: list[tuple[Action, Outcome]] = []  # since the first state
        self._now: Outcome | None = None
        self._frame: Frame | None = None  # of this moment, once it is known

    @abstractmethod
    def _enter(self, process: Process, state: State) -> Outcome:
        """Bring a process to a state.

        Raises:
            LevelError: the state cannot be loaded.
        """

    @abstractmethod
    def _execute(self, process: Process, action: Action) -> Outcome:
        """Execute an action."""

    @abstractmethod
    def _repeats(self, again: Outcome, before: Outcome) -> bool:
        """Return whether an action that was executed again ended as before."""

    @abstractmethod
    def _look(self, process: Process) -> Frame:
        """Return a picture; called where executing did not bring one."""

    @abstractmethod
    def _try_out(self) -> Frame:
        """Do a little of everything and return a picture.

        Raises:
            SimulatorError, ConfigError: something does not work.
        """

    def check(self) -> str:
        """Try the simulator out and end it; return what came in one line.

        Raises:
            ConfigError: it cannot be used here.
        """
        name = self.simulator.name
        try:
            frame = self._try_out()
        except SimulatorError as error:
            raise ConfigError(f"{name} is not fit for a run: {error}") from error
        finally:
            self.close()
        if int(frame.max()) - int(frame.min()) < 8:
            raise ConfigError(f"{name} runs, but draws one flat colour; check the Vulkan driver with vulkaninfo")
        return f"{name} draws {frame.shape[1]}x{frame.shape[0]} frames"

    def load(self, state: State) -> None:
        """Go to a state; see the base class.

        Raises:
            LevelError: it cannot be loaded, or is of another backend.
            ConfigError: the simulator does not start, and never did.
            SimulatorError: it failed, and so did those that were started in its place.
        """
        if state.backend != self.simulator.backend:
            raise LevelError(f"the state has backend {state.backend!r}; the one in use is {self.simulator.backend!r}")
        self._restarts, self._up_to_date, self._frame = 0, False, None
        now = self._request(lambda process: self._enter(process, state), catch_up=False)
        self._first, self._done, self._now, self._up_to_date = state, [], now, True

    def _act(self, action: Action) -> Outcome:
        """Execute an action and remember it.

        Raises:
            SimulatorError: the simulator failed, and so did every attempt to bring another one to this moment.
        """
        _ = self._loaded  # tells a mistake in the code before a process is started for it
        self._frame = None
        self._now = self._request(lambda process: self._execute(process, action), catch_up=True)
        self._done.append((action, self._now))
        return self._now

    def draw(self) -> Frame:
        """Return what is seen now; see the base class."""
        _ = self._loaded  # tells a mistake in the code before a process is started for it
        if self._frame is None:
            self._frame = self._request(self._look, catch_up=True)
        return self._frame

    def close(self) -> None:
        """End the process; the next request starts another one."""
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
        """Make a request of the running process, or of one that was brought to the same moment."""
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
        """Load the first state and execute the actions since again."""
        first, _ = self._loaded
        try:
            self._enter(process, first)
        except LevelError as error:
            raise SimulatorError(f"what was loaded before is refused now: {error}") from error
        for number, (action, before) in enumerate(self._done):
            again = self._execute(process, action)
            if not self._repeats(again, before):
                raise SimulatorError(
                    f"action {number} ({action}) executed again led to {again}; at first it was {before}"
                )
        self._up_to_date = True


__all__ = ["Answer", "SimulatorProcess", "SimulatorWorld", "one_line", "serve"]
