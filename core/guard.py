"""Continue a command in one child process, so that a damaged or hostile store ends that process with one message.

PyArrow, polars and Pillow end their process at some damaged bytes, and a file of kilobytes can unfold to more than the
memory. The child has a limit of memory; the parent waits, forwards signals, and reports how the child ended. Elsewhere
than on Linux a command runs unguarded.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

READERS = frozenset({"verify", "stats", "top", "peek", "view", "plot", "compare", "export", "push"})
"""Commands that read stores and change none."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHARE = 0.25
"""Part of the machine's memory that a reader may take."""
_PR_SET_PDEATHSIG = 1
_is_guarded = False


def guard(command: str) -> None:
    """Return in a child process if ``command`` reads stores; the parent ends with the status of the child."""
    global _is_guarded  # noqa: PLW0603 - a fact of this process
    if command not in READERS or sys.platform != "linux":
        return
    waited = {*_SIGNALS, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a killed command leaves nothing behind
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _is_guarded = True
        os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # PyArrow's allocator reserves a gibibyte, which counts
        limit_memory(int(_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20)
        return
    while True:
        received = signal.sigwaitinfo(waited)
        if received.si_signo != signal.SIGCHLD:
            if received.si_code <= 0:  # sent by a process; a terminal also signals the child
                os.kill(child, received.si_signo)
            continue
        process, status = os.waitpid(child, os.WNOHANG)
        if process and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            break
    if os.WIFSIGNALED(status):
        os.write(2, f"error: {_end(command, os.WTERMSIG(status))}\n".encode())
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def _end(command: str, number: int) -> str:
    """Describe the signal that ended the child."""
    if number == signal.SIGALRM:
        return f"pivot {command} made no progress within --max-seconds; raise it, or restore the store from a copy"
    advice = "restore the store from a copy" if command == "verify" else "pivot verify names what is damaged"
    return (
        f"pivot {command} was ended by {signal.Signals(number).name}: a library met a damaged file, or one that needs "
        f"more memory than this process may take; {advice}"
    )


def limit_memory(mebibytes: int) -> None:
    """Limit the memory of a guarded process and of its workers to the current use plus ``mebibytes``."""
    if not _is_guarded:
        return
    import resource  # noqa: PLC0415 - a module of Unix alone

    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    used = int(fields["VmData"].split()[0]) << 10
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = used + (mebibytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def expect_progress(seconds: float) -> None:
    """End a guarded process unless it calls this again within ``seconds``; 0 stops the timer."""
    if _is_guarded:
        signal.setitimer(signal.ITIMER_REAL, seconds)
