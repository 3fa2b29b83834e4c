"""Irrevocable removal of a process's privileges, so that an attacker who controls it gains nothing.

All guards work on Linux, some on macOS.

There are four independent guards. ``limits``: no new file descriptor, no new process, no write to files, a bounded
address space. ``nobody``: root becomes user 65534, for whom the kernel enforces process limits and permissions.
``landlock``: no access to files, folders and TCP ports, including operations without a descriptor (unlink, rename).
``seccomp``: no system call outside :data:`CALLS`, and no executable memory. The last two need Linux 5.13 and a kernel
that enables them; :func:`drop` returns the guards that are active.

Only the worker imports this module, before it reads any document. Numbers come from the kernel's headers.
"""

import ctypes
import os
import platform
import resource
import struct
import sys

NOBODY = 65534
"""Id of the unprivileged user and group on Linux."""

CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "exit": (60, 93),
    "getcwd": (79, 17),
    "gettimeofday": (96, 169),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
"""System calls that rendering needs, with their numbers on x86_64 and aarch64. All others fail with EPERM."""
_MAPPING_CALLS = ((9, 10), (222, 226))  # mmap and mprotect per architecture: allowed unless memory becomes executable
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # audit architecture, column of the tables above

_SECCOMP = (317, 277)
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same on all machines
_SET_NO_NEW_PRIVILEGES = 38
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # instructions of classic BPF
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # the second is the error number 1, EPERM
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32  # offsets in the filter's input, struct seccomp_data
_EXECUTABLE = 4


def confine(address_space: int) -> list[str]:
    """Drop every privilege that rendering does not need, irrevocably; return the names of the active guards.

    All file descriptors except the first three are closed; the open pipes stay.
    """
    os.closerange(3, 1 << 16)
    guards = ["limits"]
    linux = _Linux() if sys.platform == "linux" else None
    if linux is not None and linux.landlock():
        guards.append("landlock")
    if _become_nobody():
        guards.append("nobody")
    limits = {"NOFILE": 0, "NPROC": 0, "FSIZE": 0, "CORE": 0, "AS": address_space}
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    if linux is not None and linux.seccomp():
        guards.append("seccomp")
    return guards


def _become_nobody() -> bool:
    """Change from root to :data:`NOBODY`; return False if the user is not root or a container forbids it."""
    if os.geteuid() != 0:
        return False
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:
        return False
    return True


class _Linux:
    """System calls that restrict the process: one per guard."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long
        self._libc.prctl(_SET_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))

    def _call(self, number: int, *arguments: int | ctypes.c_void_p) -> int:
        return self._libc.syscall(ctypes.c_long(number), *arguments)

    def landlock(self) -> bool:
        """Deny all access rights to files and ports that this kernel supports."""
        version = self._call(_LANDLOCK_CREATE, ctypes.c_void_p(None), 0, 1)
        if version < 1:
            return False
        files = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
        ports, signals = 3 * (version >= 4), 3 * (version >= 6)
        rules = ctypes.create_string_buffer(struct.pack("<QQQ", files, ports, signals), 24)
        ruleset = self._call(_LANDLOCK_CREATE, ctypes.cast(rules, ctypes.c_void_p), 24, 0)
        if ruleset < 0:
            return False
        active = self._call(_LANDLOCK_RESTRICT, ruleset, 0) == 0
        os.close(ruleset)
        return active

    def seccomp(self) -> bool:
        """Refuse every system call that rendering does not need."""
        if platform.machine() not in _MACHINES:
            return False
        architecture, column = _MACHINES[platform.machine()]
        code = _program(architecture, column)
        buffer = ctypes.create_string_buffer(code)
        program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
        set_filter, all_threads = 1, 1
        return self._call(_SECCOMP[column], set_filter, all_threads, ctypes.cast(program, ctypes.c_void_p)) == 0


def _program(architecture: int, column: int) -> bytes:
    """Return the filter in classic BPF: eight bytes per instruction; jumps are relative to the next instruction."""

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("=HBBI", code, then, otherwise, value)

    steps = [step(_LOAD, _ARCHITECTURE), step(_EQUAL, architecture, then=1), step(_RETURN, _KILL), step(_LOAD, _NUMBER)]
    for numbers in CALLS.values():
        steps += [step(_EQUAL, numbers[column], otherwise=1), step(_RETURN, _ALLOW)]
    for number in _MAPPING_CALLS[column]:
        steps += [step(_EQUAL, number, otherwise=4), step(_LOAD, _THIRD_ARGUMENT)]
        steps += [step(_ANY_BIT, _EXECUTABLE, otherwise=1), step(_RETURN, _REFUSE), step(_RETURN, _ALLOW)]
    return b"".join([*steps, step(_RETURN, _REFUSE)])
