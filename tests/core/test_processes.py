"""Check a supervised child: deadlines in both directions, the end of its process group, typed errors, limits."""

import os
import resource
import sys
import time
from typing import Any

import psutil
import pytest
from pivot.core.errors import SimulatorError
from pivot.core.processes import LARGEST_PART, Child
from pivot.tests.flow_runs import PATIENCE

ECHO = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read(%d)); sys.stdout.flush(); sys.stdin.read()"
DEAF = "import time; print(flush=True); time.sleep(3600)"


def child(code: str, **options: Any) -> Child:
    return Child([sys.executable, "-S", "-c", code], "the child", SimulatorError, **options)


def is_gone(pid: int) -> bool:
    for _ in range(12_000):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_much_is_written_and_read() -> None:
    data = os.urandom(1 << 20)
    echo = child(ECHO % (len(data) + 4))
    with echo.guard("echo", PATIENCE) as deadline:
        echo.write_part(data, deadline)
        assert echo.read_part(deadline) == data
    assert echo.status() is None
    echo.end()
    echo.end()
    with pytest.raises(SimulatorError, match=r"ended at 'more' \(status -9\)"), echo.guard("more", 1) as deadline:
        echo.write(b"x", deadline)


def test_a_child_that_does_not_read_misses_its_deadline() -> None:
    deaf = child(DEAF)
    with deaf.guard("wake", PATIENCE) as deadline:
        deaf.read(1, deadline)
    begin = time.monotonic()
    said = r"^the child did not answer 'hear' within 0\.3 s and was ended$"
    with pytest.raises(SimulatorError, match=said), deaf.guard("hear", 0.3) as deadline:
        deaf.write(bytes(1 << 20), deadline)
    assert time.monotonic() - begin < PATIENCE
    assert is_gone(deaf.pid)


def test_what_a_child_started_ends_with_it() -> None:
    code = (
        "import subprocess, sys; a = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(3600)']);"
        "print(a.pid, flush=True); sys.stdin.read()"
    )
    parent = child(code)
    with parent.guard("number", PATIENCE) as deadline:
        number = b""
        while not number.endswith(b"\n"):
            number += parent.read(1, deadline)
    assert psutil.Process(int(number)).status() != psutil.STATUS_ZOMBIE
    parent.end()
    assert is_gone(int(number))


def test_a_death_is_reported_with_its_last_words() -> None:
    dying = child("import sys; print('first', file=sys.stderr); print('the reason', file=sys.stderr); sys.exit(7)")
    said = r"^the child's process ended at 'speak' \(status 7\): the reason$"
    with pytest.raises(SimulatorError, match=said), dying.guard("speak", PATIENCE) as deadline:
        dying.read(1, deadline)


def test_an_interrupt_leaves_no_half_finished_talk() -> None:
    waiting = child(DEAF)
    with pytest.raises(KeyboardInterrupt), waiting.guard("wait", 30):
        raise KeyboardInterrupt
    assert is_gone(waiting.pid)


def test_a_length_that_cannot_be_is_not_waited_for() -> None:
    size = (LARGEST_PART + 1).to_bytes(4, "little")
    liar = child(f"import sys; sys.stdout.buffer.write({size!r}); sys.stdout.flush(); sys.stdin.read()")
    said = "announced an answer of 4000001 bytes"
    with pytest.raises(SimulatorError, match=said), liar.guard("lie", PATIENCE) as deadline:
        liar.read_part(deadline)
    assert is_gone(liar.pid)


def test_limits_are_set_before_the_program_runs() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    code = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0], flush=True)"
    limited = child(code, preexec_fn=limit, env={})
    with limited.guard("limit", PATIENCE) as deadline:
        assert limited.read(2, deadline) == b"0\n"
    limited.end()


def test_a_high_descriptor_can_be_waited_for() -> None:
    """``select`` fails above 1,024 descriptors, which a run with many open files exceeds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        echo = child(ECHO % 1)
        assert echo.requests > 1024
        with echo.guard("echo", PATIENCE) as deadline:
            echo.write(b"x", deadline)
            assert echo.read(1, deadline) == b"x"
        echo.end()
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
