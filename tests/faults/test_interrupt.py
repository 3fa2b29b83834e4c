"""Ctrl-C at any moment ends a run without output of its workers, to which the terminal sends it, too."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Never

import pytest
from pivot import cli
from pivot.flows.engines.local import InProcess
from pivot.tests.flow_runs import PATIENCE, python
from pydantic import BaseModel, model_serializer
from pydantic_core import PydanticSerializationError

INTERRUPTED = """
import os, signal, sys, time
from pivot.flows.engines.local import worker_pool

try:
    with worker_pool(2, ["sokoban", "frozenlake"]):
        try:
            time.sleep(float(sys.argv[1]))
            os.killpg(0, signal.SIGINT)
            time.sleep(60)
        finally:
            time.sleep(0.5)  # a command closes progress bars and a server before it ends the workers
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", [0.0, 0.5])
def test_ctrl_c_while_workers_still_import_prints_nothing(moment: float) -> None:
    done = python(INTERRUPTED, moment, start_new_session=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_workers_are_deaf_to_ctrl_c_and_the_parent_is_not() -> None:
    script = """
import signal
from pivot.flows.engines.local import worker_pool

with worker_pool(2, ["sokoban"]) as pool:
    print(pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN)
    print(pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result())
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    done = python(script)
    assert (done.stderr, done.stdout.split()) == ("", ["True", "set()", "set()"]), "nothing stays blocked"


LOST = """
import multiprocessing, os, signal, sys, threading
from pivot.flows.engines.local import worker_pool

with worker_pool(2, ["sokoban"]) as pool:
    for ready in [pool.submit(os.getpid) for _ in range(20)]:
        ready.result()
    workers = sorted(multiprocessing.active_children(), key=lambda each: each.pid)
    lost = workers[int(sys.argv[1])].pid
    os.kill(lost, signal.SIGSTOP)  # it may hold the lock under which orders are taken
    threading.Timer(1.0, os.kill, (lost, signal.SIGKILL)).start()  # the pool waits for its workers by then
print("ended")
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_that_is_killed_at_the_end_leaves_nobody_waiting(which: int) -> None:
    """One of the two holds the lock for which the other waits."""
    done = python(LOST, which)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


SLEEPY = """
import sys
import time
import gymnasium
from pivot.tests.environments.lanes import Lane


class Sleepy(Lane):
    def step(self, action):
        frame = sys._getframe()
        while frame is not None and frame.f_globals["__name__"] != "pivot.rollouts.episode":
            frame = frame.f_back
        if frame is not None:  # levels are made and checked at once
            time.sleep(0.3)
        return super().step(action)


gymnasium.register("Sleepy-v0", entry_point="sleepy:Sleepy")
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("workers", "flags", "how"), [("1", [], ""), ("2", ["--refresh"], "without --refresh ")])
def test_sigterm_ends_a_shard_at_work_as_ctrl_c_does(tmp_path: Path, workers: str, flags: list[str], how: str) -> None:
    """The shard would take minutes."""
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    settings = ["--set", "gym.id=Sleepy-v0", "--set", "gym.package=sleepy", "--set", "gym.horizon=6"]
    command = [sys.executable, "-P", "-m", "pivot", "build", "gym", "--out", str(tmp_path / "store")]
    run = subprocess.Popen(
        [*command, *settings, "--tasks", "3", "--rollouts", "8", "--workers", workers, *flags],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    while not (line := run.stderr.readline()).startswith("rolling out"):
        assert line, "it ended"
    run.send_signal(signal.SIGTERM)
    assert run.stderr.read().splitlines()[-1] == f"interrupted; run the same command again {how}to resume"
    assert run.wait(timeout=PATIENCE) == 130


def test_an_interrupt_within_a_callback_of_pydantic_counts() -> None:
    class Meets(BaseModel):
        @model_serializer
        def _stopped(self) -> dict[str, int]:
            raise KeyboardInterrupt

    with pytest.raises(PydanticSerializationError) as raised:
        Meets().model_dump()
    assert cli._stopped(raised.value) and not cli._stopped(ValueError())


def test_a_call_in_another_thread_is_stopped() -> None:
    pool, begun, ended = InProcess(), threading.Event(), threading.Event()

    def call() -> Never:
        begun.set()
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.set()

    def work() -> None:
        with suppress(KeyboardInterrupt):
            pool.submit(call)

    threading.Thread(target=work, daemon=True).start()
    assert begun.wait(timeout=PATIENCE)
    pool.stop()
    assert ended.wait(timeout=PATIENCE)
