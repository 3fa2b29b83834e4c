"""A process whose runs are killed by SIGKILL at a chosen moment: just before the n-th change that they make on disk.

Started once, it imports everything and then forks a child for each order that it reads, so that a kill costs no start.
An order is a line of JSON: what to do, in which store, with which config or changes, and when to die.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
from PIL import Image
from pivot import plugins
from pivot.datasets.progress import Silent
from pivot.flows.engines.local import InProcess, execute_with
from pivot.flows.relabel import relabel_store
from pivot.storage import local

NEVER = 1_000_000
KILLED = "killed"


class Victim:
    """The test's side: gives orders and is told how they ended."""

    def __enter__(self) -> "Victim":
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def run(self, action: str, root: Path, given: dict[str, Any], die_at: int = NEVER) -> list[str]:
        """Carry out one order; return the changes that it made on disk, the last of which a kill prevented."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"action": action, "root": str(root), "given": given, "die_at": die_at}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer["end"] == (KILLED if len(answer["changes"]) == die_at else "0"), answer
        return answer["changes"]


# The victim's side


def _watch(report: int, die_at: int) -> None:
    """Report every change on disk before it is made, and die instead of the ``die_at``-th."""
    made = 0
    one_at_a_time = threading.Lock()

    def watched(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def before(*places: Any, **more: Any) -> Any:
            nonlocal made
            with one_at_a_time:
                made += 1
                os.write(report, f"{name} {places[0] if name == 'exchange' else places[-1]}\n".encode())
                if made == die_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return change(*places, **more)

        return before

    for name in ("replace", "rename", "unlink", "rmdir"):
        setattr(os, name, watched(name, getattr(os, name)))
    local._exchange = watched("exchange", local._exchange)


def _carry_out(action: str, root: Path, given: dict[str, Any]) -> None:
    if action == "build":
        pivot.build(given, root)
    else:
        if action == "relabel without exchange":
            local.ctypes.CDLL = lambda *_, **__: None  # a system whose C library knows no renameat2
        relabel_store(root, given, execute_with(InProcess()), Silent(), keep_old=action == "relabel, keep old")


def _get_ready() -> None:
    """Import what a run needs, so that no child pays for it; without starting a thread, which a fork would lose."""
    importlib.import_module("pandas")  # pyarrow does, at the first table
    Image.init()
    for group in plugins.GROUPS:
        for name in plugins.names(group):
            plugins.load(group, name)
    pivot.certify("sokoban", "######\n#@$ .#\n######", ["invalid"], 1)
    pivot.certify("frozenlake", "SFFG", ["invalid"], 1)


def _serve() -> None:
    _get_ready()
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            status = 1
            try:
                _watch(writing, order["die_at"])
                _carry_out(order["action"], Path(order["root"]), order["given"])
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading) as report:
            changes = report.read().splitlines()
        _, wait_status = os.waitpid(child, 0)
        end = KILLED if os.WIFSIGNALED(wait_status) else str(os.WEXITSTATUS(wait_status))
        sys.stdout.write(json.dumps({"changes": changes, "end": end}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
