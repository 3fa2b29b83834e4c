"""A process that runs commands of `pivot` in forks of itself, so that a command on a hostile store costs no new start.

Reads one job a line from standard input, JSON: `argv`, `nobody`, `limit` (s), `interrupt` (s, or null). Answers one
line: `status` (negative for a signal, null where it ran past its limit), `seconds`, `memory` (peak, MB), `out`, `err`.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, NoReturn, TextIO

import huggingface_hub  # noqa: F401  # loaded once for all forks, as the next ones
import jinja2  # noqa: F401
import numba  # noqa: F401
import pandas as pd  # noqa: F401
import pivot.cli
import pivot.datasets.verify.verify
import pivot.environments.sokoban
import pivot.solvers.sokoban.solver
import polars as pl
from pivot.__main__ import main
from pivot.core.errors import PivotError

NOBODY = 65534
ADDRESSES = 12 << 30
"""Address space that a command may reserve, to protect the machine; the tests measure the used memory."""


def _say(file: TextIO, line: str) -> None:
    file.write(line + "\n")
    file.flush()


def _load(root: str) -> None:
    frames = pivot.load_store(root)
    for name in ("episodes", "steps", "labels"):
        _say(sys.stdout, f"{name} {getattr(frames, name).select(pl.len()).collect().item()}")


def _child(job: dict[str, Any], out: int, err: int) -> NoReturn:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(job["home"])
    os.environ.update(HOME=job["home"], TMPDIR=job["home"], XDG_CACHE_HOME=job["home"], COLUMNS="200", NO_COLOR="1")
    tempfile.tempdir = None
    if job["nobody"]:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    status = 0
    try:
        if job["argv"][0] == "load_store":
            try:
                _load(job["argv"][1])
            except (PivotError, pl.exceptions.PolarsError) as error:  # lazy frames fail when they are collected
                _say(sys.stderr, "error: " + str(error).encode("unicode_escape").decode())
                status = 1
        else:
            sys.argv = ["pivot", *job["argv"]]
            main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001  # what a user would see as a traceback
        traceback.print_exc()
        status = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        child = os.fork()
        if not child:
            _child(job, out.fileno(), err.fileno())
        limit, interrupt, late = job["limit"], job.get("interrupt"), False
        while True:
            done, status, usage = os.wait4(child, os.WNOHANG)
            spent = time.monotonic() - start
            if done:
                break
            if interrupt and spent > interrupt:
                os.kill(child, signal.SIGINT)
                interrupt = None
            if spent > limit:
                late = True
                os.killpg(child, signal.SIGKILL)
                limit = spent + 60
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers that outlived it
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(200_000).decode(errors="surrogateescape"))
        code = None if late else os.waitstatus_to_exitcode(status)
        memory = usage.ru_maxrss / 1024
        return {"status": code, "seconds": spent, "memory": memory, "out": texts[0], "err": texts[1]}


if __name__ == "__main__":
    for line in sys.stdin:
        _say(sys.stdout, json.dumps(_run(json.loads(line))))
