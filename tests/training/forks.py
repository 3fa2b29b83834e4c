"""Processes forked from one that has already imported PyTorch, TRL and the product, which takes seven seconds."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from pivot.tests.training.ports import free_ports

PATIENCE = 500.0
"""Seconds for a process, because one whose partner is stuck would wait forever."""


@cache
def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pivot.tests.training.together"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONSAFEPATH", "1")  # the current folder may hide packages
        forkserver.ensure_running()
    return context


def _enter(work: Callable[..., object], words: Sequence[Any], folder: Path, log: Path, environment: Any) -> None:
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), sys.stderr.fileno())
    os.environ.update(environment)
    os.chdir(folder)
    work(*words)


def start(
    work: Callable[..., object], *words: Any, folder: Path, log: Path, environment: Mapping[str, str] | None = None
) -> Any:
    """Start a function in a folder; what it writes to its error stream is in ``log``."""
    process = _context().Process(target=_enter, args=(work, words, folder, log, environment or {}))
    process.start()
    return process


def complete(folder: Path, logs: Path, work: Callable[..., object], *words: Any, ranks: int = 1) -> list[str]:
    """Run a function in ``ranks`` processes that train together; return what each wrote to its error stream.

    The status of each process, negative for a signal, is the first word.
    """
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(ranks)}
    shared |= {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    files = [logs / f"{rank}.log" for rank in range(ranks)]
    processes: list[Any] = []
    with ExitStack() as stack:
        for rank, file in enumerate(files):
            own = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            process = start(work, *words, folder=folder, log=file, environment=own)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            process.join(PATIENCE)
        return [f"{each.exitcode} {file.read_text('utf-8')}" for each, file in zip(processes, files, strict=True)]
