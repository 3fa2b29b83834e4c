"""Attacks of code that has taken over the worker: run inside a real worker, in place of drawing.

``start(...)`` is the program of a worker in which a document of :func:`order` runs one of :data:`ATTACKS` (or all
:data:`RIGHTS`) after the rights were given away. The answer names the rights that were still there.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOBODY = 65534
_LIBC = ctypes.CDLL(None, use_errno=True)
_REFUSED = (OSError, MemoryError, RuntimeError, ValueError)
_IO_URING_SETUP, _PROCESS_VM_READV = 425, {"x86_64": 310, "aarch64": 270}[os.uname().machine]


class _Span(ctypes.Structure):
    """Where a piece of memory begins, and its bytes."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _system_call(number: int, *arguments: Any) -> None:
    """Make a system call that would fail for its arguments if it was allowed at all."""
    ctypes.set_errno(0)
    _LIBC.syscall(ctypes.c_long(number), *arguments)
    if ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        raise PermissionError


def _execute(file: Path) -> None:
    """Execute a file that is not a program: where that is allowed, it fails because of the content."""
    try:
        os.execv(file, ["x"])
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _raise_limits() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _read_other_memory() -> None:
    mine, nowhere = ctypes.create_string_buffer(8), 8
    spans = [ctypes.byref(_Span(start, 8)) for start in (ctypes.addressof(mine), nowhere)]
    _system_call(_PROCESS_VM_READV, os.getppid(), spans[0], 1, spans[1], 1, 0)


def rights(folder: Path) -> dict[str, Callable[[], object]]:
    """Name every right that is tried; each call raises an error where it is refused."""
    return {
        "read": lambda: os.open(folder / "there", os.O_RDONLY),
        "write": lambda: os.open(folder / "there", os.O_WRONLY),
        "create": lambda: os.open(folder / "new", os.O_CREAT | os.O_WRONLY),
        "folder": lambda: os.open("/", os.O_RDONLY),
        "socket": socket.socket,
        "local socket": lambda: socket.socket(socket.AF_UNIX),
        "pair": socket.socketpair,
        "pipe": os.pipe,
        "copy": lambda: os.dup(0),
        "memory file": lambda: os.memfd_create("x"),
        "remove": (folder / "remove").unlink,
        "rename": lambda: (folder / "rename").rename(folder / "renamed"),
        "make folder": (folder / "made").mkdir,
        "link": lambda: os.link(folder / "there", folder / "link"),
        "symbolic link": lambda: (folder / "symbolic").symlink_to("x"),
        "truncate": lambda: os.truncate(folder / "there", 0),
        "mode": lambda: (folder / "there").chmod(0o755),
        "look": (folder / "there").stat,
        "execute": lambda: _execute(folder / "there"),
        "fork": _fork,
        "thread": lambda: threading.Thread(target=int).start(),
        "signal": lambda: os.kill(os.getppid(), 0),
        "other memory": _read_other_memory,
        "ring": lambda: _system_call(_IO_URING_SETUP, 1, None),
        "root": lambda: os.setuid(0),
        "limits": _raise_limits,
        "program memory": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
        "much memory": lambda: bytearray(10**9),
    }


def _try_rights(folder: Path) -> list[str]:
    for descriptor in (2, *range(3, 64)):
        try:
            os.close(descriptor)
        except OSError:
            continue
    there = []
    for name, attempt in rights(folder).items():
        try:
            attempt()
        except _REFUSED:
            continue
        there.append(name)
    return there


def _answer(*parts: bytes) -> None:
    for part in parts:
        os.write(1, part)


def _endless() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    while True:
        pass


ATTACKS: dict[str, Callable[[], object]] = {
    "another answer before": lambda: _answer(bytes([1, 1, 4, 0, 0, 0, 0, 0, 0, 0]), b"fake"),
    "an answer of nonsense": lambda: _answer(b"\xff" * 10),
    "an answer without end": lambda: _answer(bytes([1, 1]) + b"\xff" * 8),
    "an answer cut short": lambda: (_answer(b"\0"), os._exit(0)),
    "no pipe": lambda: os.close(1),
    "the end": lambda: os._exit(0),
    "a bad memory access": lambda: ctypes.string_at(0),
    "all memory": lambda: [bytearray(10**7) for _ in range(10**4)],
    "no timer": _endless,
}


def order(attack: str) -> str:
    """Return the document that runs an attack; ``rights:FOLDER`` tries all rights on files of that folder."""
    return f"<svg><!--attack {json.dumps(attack)}--></svg>"


def install(worker: Any, without: tuple[str, ...] = (), nobody: bool = False) -> None:
    """Make the worker's module run orders; leave some of its guards out, or begin as a user without rights."""
    draw = worker.render
    guards = sys.modules[worker.confine.__module__]

    def render(document: bytes, side: int, picture: Any) -> None:
        head = b"<svg><!--attack "
        if not document.startswith(head):
            draw(document, side, picture)
            return
        attack = json.loads(document.removeprefix(head).partition(b"-->")[0])
        if attack.startswith("rights:"):
            raise ValueError("still there: " + ", ".join(_try_rights(Path(attack.removeprefix("rights:")))))
        ATTACKS[attack]()

    worker.render = render
    for name in without:
        owner, method = (guards, "_become_nobody") if name == "nobody" else (guards._Linux, name)
        setattr(owner, method, lambda *_: False)
    if nobody:
        worker.warm_up()
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def start(**options: Any) -> str:
    """Return the program of such a worker, for ``process._START``."""
    return (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import sandbox.worker as worker; "
        f"sys.path.insert(0, {str(Path(__file__).parent)!r}); import attack; "
        f"attack.install(worker, **{options!r}); worker.main()"
    )
