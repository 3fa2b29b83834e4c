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
