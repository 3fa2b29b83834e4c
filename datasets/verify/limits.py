"""Limits of time and memory for the verification of a store from an unknown source.

Each shard, and each check of the store as a whole, is one piece of work within the same limits. Time: a thread raises
:class:`LimitReached` in the thread that works, between two of its instructions. What does not come back from compiled
code after a grace period ends its process, where that process is ours to end. Memory: on Linux the system refuses
memory beyond the limit (``RLIMIT_DATA``); other systems have none.
"""

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

SECONDS = 600.0
MEMORY = 1024
GRACE = 20.0
"""Seconds in which interrupted work has to end by itself."""
_RAISED_EVERY = 1.0  # seconds: code that swallows the first exception gets the next
_MEBIBYTE = 1 << 20


class LimitReached(BaseException):
    """Raised within work that takes longer than its limit."""


class LimitProblem(str):
    """A reached limit, as opposed to a wrong row or file."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Time and memory that one shard, or one check of the whole store, may take."""

    seconds: float = SECONDS
    memory: int = MEMORY
    """MiB that a process may take in addition to what it has when the work begins."""
    ends_process: Callable[[str], None] | None = None
    """Called with the problem when work does not end by itself; it ends the process. None lets it go on."""

    def problem(self, work: str, reason: str) -> LimitProblem:
        """Describe the limit that some work reached, and how to raise it."""
        if reason == "time":
            return LimitProblem(f"limit reached: {work} took more than {self.seconds:g} s; raise it with --max-seconds")
        return LimitProblem(f"limit reached: {work} needed more than {self.memory} MiB; raise it with --max-memory")


def end_process(problem: str) -> None:
    """Write the problem to standard error and end this process at once: a worker, or the command itself."""
    with contextlib.suppress(OSError):
        os.write(2, f"✗ {problem}\n".encode())
    os._exit(1)


def within(limits: Limits, name: str, work: Callable[[], list[str]]) -> list[str]:
    """Return the problems that ``work`` finds, or the limit that it reached; ``name`` is how the message calls it."""
    with _memory(limits.memory * _MEBIBYTE):
        watcher = _Watcher(limits, name)
        try:
            try:
                watcher.start()
                return work()
            finally:
                watcher.stop()
        except LimitReached:
            watcher.stop()
            return [limits.problem(name, "time")]
        except Exception as error:
            if is_out_of_memory(error):
                return [limits.problem(name, "memory")]
            raise


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, by an error, its cause or what it says: libraries name it in many ways."""
    seen = 0
    while error is not None and seen < 10:
        text = str(error).lower()
        if isinstance(error, MemoryError) or any(word in text for word in _OUT_OF_MEMORY):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


_OUT_OF_MEMORY = (
    *("out of memory", "cannot allocate memory", "malloc of size", "realloc of size", "unable to allocate"),
    "can't start new thread",
)


class _Watcher:
    """A thread that raises LimitReached in the thread that made it when the time is over, until it is stopped."""

    def __init__(self, limits: Limits, name: str) -> None:
        self._limits, self._name = limits, name
        self._thread, self._ended, self._lock = threading.get_ident(), threading.Event(), threading.Lock()

    def start(self) -> None:
        """Begin to watch; from now on LimitReached may arrive anywhere, until :meth:`stop` returns."""
        threading.Thread(target=self._watch, name="pivot-limit", daemon=True).start()

    def _watch(self) -> None:
        if self._ended.wait(self._limits.seconds):
            return
        late = monotonic() + GRACE
        while not self._ended.is_set():
            with self._lock:
                if not self._ended.is_set():
                    _raise_in(self._thread, LimitReached)
            if self._limits.ends_process is not None and monotonic() > late:
                self._limits.ends_process(self._limits.problem(self._name, "time"))
            self._ended.wait(_RAISED_EVERY)

    def stop(self) -> None:
        """Let nothing arrive from now on; one that arrives in here is dropped."""
        while True:
            try:
                with self._lock:
                    self._ended.set()
                    _raise_in(self._thread, None)
            except LimitReached:
                continue
            return


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Let a thread raise an exception before its next instruction; None takes back one that has not arrived."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind))


@contextlib.contextmanager
def _memory(additional: int) -> Iterator[None]:
    """Let the system refuse this process memory beyond what it has and ``additional`` bytes, where it can."""
    used = _data_bytes()
    if used is None:
        yield
        return
    import resource  # noqa: PLC0415 - a module of Unix alone

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used + additional
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """Return the bytes that count against the limit of memory already; None if the system does not report them."""
    if sys.platform != "linux":
        return None
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["VmData"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
