"""``pivot`` and ``python -m pivot``. The command line is imported only when it runs.

Processes that are spawned (our workers, a simulator, vLLM's) import the main module again; they should get nothing by
it, and vLLM's CPU workers even fail when numba is already there.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NoReturn

from .core.errors import INTERRUPTED, StoreError
from .core.guard import guard
from .core.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Buffer

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what `timeout`, service managers and batch systems send in its place."""


class Outlet(io.FileIO):
    """Standard output or error that no reader and no full disk can turn into a traceback."""

    def write(self, data: "Buffer", /) -> int:
        """Write; drop output after its reader has closed (`pivot stats DIR | head`).

        Raises:
            StoreError: standard output cannot be written. Later output is dropped, so the error is raised once.
        """
        try:
            return super().write(data) or 0
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError) or self.fileno() != 1:
                return memoryview(data).nbytes
            raise StoreError(f"cannot write the output: {error.strerror}") from error


def _opened(stream: io.TextIOWrapper | None, descriptor: int) -> io.TextIOWrapper:
    """Return a standard stream to which writing never fails, also if it is closed or its encoding lacks characters."""
    if stream is None:  # closed by the parent: no later file may take its descriptor
        return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    raw = io.BufferedWriter(Outlet(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)


def _interrupted(*_: object) -> NoReturn:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line; from the first line on, Ctrl-C ends it with one line and status 130.

    Before it, the interpreter handles Ctrl-C, so this module imports nothing that takes time.
    """
    guard(next((word for word in sys.argv[1:] if not word.startswith("-")), ""))
    usual = [each for each in _INTERRUPTS if signal.getsignal(each) in (signal.default_int_handler, signal.SIG_DFL)]
    # A library that is interrupted while it is imported, or while the process ends, raises or prints anything.
    _handle(usual, _interrupted)
    sys.stdout, sys.stderr = _opened(sys.stdout, 1), _opened(sys.stderr, 2)  # type: ignore[arg-type]
    if sys.argv[1:] == ["--version"]:  # without the libraries of the commands, whose import takes seconds
        _say_version()
        return
    from .cli import main as run  # noqa: PLC0415 - see above

    try:
        try:
            _handle(usual, signal.default_int_handler)
            run()
        finally:
            _handle(usual, _interrupted)
    except KeyboardInterrupt:
        _interrupted()


def _handle(signals: Iterable[signal.Signals], action: Callable[..., object]) -> None:
    for each in signals:
        signal.signal(each, action)


def _say_version() -> None:
    try:
        sys.stdout.write(f"pivot {__version__}\n")
        sys.stdout.flush()
    except StoreError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
