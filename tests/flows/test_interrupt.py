"""Ctrl-C at any moment ends a run in silence: the terminal sends it to the worker processes, too, ready or not."""

import subprocess
import sys

import pytest

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
            time.sleep(1)  # a command closes progress bars and a server before it ends the workers
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("moment", [0.0, 0.3, 1.0])
def test_ctrl_c_while_workers_still_import_prints_nothing(moment: float) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(moment)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, start_new_session=True)
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
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=100)
    assert done.stderr == ""
    deaf, theirs, ours = done.stdout.splitlines()
    assert deaf == "True"
    assert theirs == ours == "set()", "nothing stays blocked on either side"


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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_that_is_killed_at_the_end_leaves_nobody_waiting(which: int) -> None:
    """One of the two holds the lock for which the other waits."""
    command = [sys.executable, "-c", LOST, str(which)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
