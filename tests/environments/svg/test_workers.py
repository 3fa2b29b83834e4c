"""Workers and their pool: when they are replaced, which document is blamed, and that no caller waits forever."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from pivot.core.errors import ConfigError, SimulatorError
from pivot.core.processes import Child
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.sandbox import pool, process
from pivot.environments.svg.sandbox.pool import Pool, rasterise
from pivot.environments.svg.sandbox.process import Worker
from pivot.environments.svg.sandbox.raster import Outcome, Raster
from pivot.tests.environments.svg.drawing import draw_alone, draw_beside_children, same
from pivot.tests.environments.svg.hostile import slow_but_legal, svg, writing
from pivot.tests.flow_runs import PATIENCE

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="watches processes in /proc")

GOOD = writing()
ENDLESS = svg('<circle r="1e308"/>')
STICKY = svg('<text y="50" font-size="70000">x</text>')
PLAIN_ERROR = svg('<g stroke-miterlimit="x"/>')
HUGE = svg(
    '<pattern id="p" width="1e6" height="1e6" patternUnits="userSpaceOnUse"><rect width="1e6" height="1e6"/></pattern>'
    '<rect width="99" height="99" fill="url(#p)"/>',
    "0 0 1 1",
)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)


OBEDIENT = """
import os, signal, sys
sys.path.insert(0, sys.argv.pop(1))
from sandbox import worker
draw = worker.render
def endless():
    signal.setitimer(signal.ITIMER_PROF, 0)
    while True:
        pass
def render(document, side, picture):
    before, order, after = document.partition(b"<!--run ")
    if order:
        exec(after.partition(b"-->")[0])
    else:
        draw(document, side, picture)
worker.render = render
worker.main()
"""
"""Program of a worker that executes the Python in a comment of a document, as an attacker in control would."""
ATTACKS = {
    "an answer before its own": "os.write(1, bytes([1, 1, 4, 0, 0, 0, 0, 0, 0, 0]) + b'fake')",
    "an answer of nonsense": "os.write(1, bytes([255]) * 10)",
    "an answer without end": "os.write(1, bytes([1, 1]) + bytes([255]) * 8)",
    "an answer cut short": "os.write(1, bytes(1)); os._exit(0)",
    "a closed pipe": "os.close(1)",
    "the end of the process": "os._exit(0)",
}


def order(code: str) -> str:
    """Return a document with an order for such a worker."""
    return f"<svg><!--run {code}--></svg>"


# --- one worker -------------------------------------------------------------------------------------------------------


def test_a_running_worker_has_these_limits() -> None:
    with Worker() as worker:
        worker.draw(GOOD)
        limits = Path(f"/proc/{worker.pid}/limits").read_text()
        rows = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()[1:]}
        assert rows["Max address space"] == [str(process.MEMORY_BYTES)] * 2
        assert rows["Max file size"] == rows["Max core file size"] == ["0", "0"]
        assert b"HOME=" not in Path(f"/proc/{worker.pid}/environ").read_bytes(), "secrets of the parent stay there"


@pytest.mark.parametrize("attack", ATTACKS)
def test_after_a_wrong_answer_the_next_document_gets_its_own(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_START", OBEDIENT)
    expected = draw_alone(GOOD)
    with Pool(1) as workers:
        workers.draw(GOOD)
        raster = workers.draw(order(ATTACKS[attack]))
        assert (raster.pixels is None) == (raster.outcome is not Outcome.OK)
        assert same(workers.draw(GOOD).pixels, expected)


def test_a_killed_worker_is_replaced() -> None:
    expected = draw_alone(GOOD)
    with Worker() as worker:
        worker.draw(GOOD)
        for kind in (signal.SIGKILL, signal.SIGSEGV):
            first = worker.pid
            assert first is not None
            os.kill(first, kind)
            wait_until(lambda first=first: gone(first))
            assert same(worker.draw(GOOD).pixels, expected)
            assert worker.pid != first


def test_running_out_of_memory_counts_in_a_fresh_worker_only() -> None:
    """A worker may be nearly full of what it drew before, so its result does not count."""
    with Worker() as worker:
        requests: list[int | None] = []
        ask = worker._ask

        def watched(child: Child, data: bytes) -> Any:
            requests.append(child.pid)
            return ask(child, data)

        worker._ask = watched
        worker.draw(GOOD)
        assert worker.draw(HUGE).outcome is Outcome.MEMORY
        assert len(requests) == 3
        assert requests[0] == requests[1] != requests[2]


def test_a_worker_that_is_kept_waiting_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock does not decide: what needs 0.1 s of a processor may take as long as the machine is busy."""
    (name, slow), *_ = slow_but_legal().items()
    expected = draw_alone(slow if isinstance(slow, str) else slow.decode())
    with Worker() as worker:
        worker.draw(GOOD)
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(2.5, os.kill, (pid, signal.SIGCONT)).start()
        raster = worker.draw(slow)
        assert (raster.outcome, worker.pid) == (Outcome.OK, pid), name
        assert same(raster.pixels, expected)


def test_a_stopped_worker_is_replaced_and_its_document_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as worker:
        expected = worker.draw(GOOD).pixels
        first = worker.pid
        assert first is not None
        kill = worker._kill
        monkeypatch.setattr(process, "WALL_SECONDS", 1.0)
        monkeypatch.setattr(worker, "_kill", lambda: (monkeypatch.undo(), kill()))  # the second worker gets its time
        os.kill(first, signal.SIGSTOP)
        other = svg("<text y='50'>x</text>")
        assert worker.draw(other).outcome is Outcome.OK
        assert worker.pid != first
        assert same(worker.draw(GOOD).pixels, expected)


def test_a_document_that_times_out_twice_stays_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """No outcome, so nothing to score: the environment raises, and nothing is remembered."""
    monkeypatch.setattr(process, "_START", OBEDIENT)
    monkeypatch.setattr(pool, "_pool", Pool(1))
    env = SvgEnv(SvgConfig())
    env.reset(
        options={"state": '{"target": "<svg xmlns=\\"http://www.w3.org/2000/svg\\"><text y=\\"9\\">x</text></svg>"}'}
    )
    before = env.snapshot()
    document = order("endless()")
    with monkeypatch.context() as patch:
        patch.setattr(process, "WALL_SECONDS", 0.5)
        started = monotonic()
        for _ in range(2):
            with pytest.raises(SimulatorError, match="overloaded"):
                env.step(document)
        assert monotonic() - started < 120  # instead of 240 for four workers
    assert env.snapshot() == before
    assert env.step(GOOD)[4]["valid_svg"]
    pool._pool.close()


def test_a_closed_worker_leaves_no_process() -> None:
    worker = Worker()
    worker.draw(GOOD)
    pid = worker.pid
    worker.close()
    worker.close()
    assert not Path(f"/proc/{pid}").exists()
    assert worker.draw(GOOD).outcome is Outcome.OK
    worker.close()


def test_a_worker_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_START", "import no_such_library")
    with Worker() as worker, pytest.raises(SimulatorError, match="cairosvg"):
        worker.draw(GOOD)
    monkeypatch.setattr(pool, "_pool", Pool(1))
    with pytest.raises(ConfigError, match="libcairo2"):
        SvgEnv.check_ready(SvgConfig())


# --- the pool ---------------------------------------------------------------------------------------------------------


def test_the_number_of_workers_changes_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch a document whose error, large drawing, full memory or endless loop changes the picture of another."""
    assert SvgEnv.blocks
    config = SvgConfig(horizon=2)
    documents = [STICKY, HUGE, ENDLESS, PLAIN_ERROR, "<svg", slow_but_legal()["slow groups"]]
    written = [svg(f"<!-- {k} -->" + GOOD.partition(">")[2].removesuffix("</svg>")) for k in range(6)]

    def play(seed: int) -> list[Any]:
        env = SvgEnv(config)
        frame, _ = env.reset(seed=seed % 3)
        log: list[Any] = [frame.tobytes()]
        for document in (documents[seed], written[seed]):
            assert isinstance(document, str)
            frame, *rest = env.step(document)
            log += [frame.tobytes(), rest]
        return log

    logs = []
    for count in (1, 3):
        monkeypatch.setattr(pool, "_pool", Pool(count))
        pool._kept.cache_clear()
        with ThreadPoolExecutor(6) as threads:
            logs.append(list(threads.map(play, range(6))))
        assert len(pool._pool.pids) <= count
        pool._pool.close()
    assert logs[0] == logs[1]


def test_children_have_workers_of_their_own() -> None:
    """Run in a fresh process, since a fork inherits what earlier tests registered for the end of their process."""
    parent = multiprocessing.get_context("spawn").Process(target=draw_beside_children)
    parent.start()
    parent.join(300)
    assert parent.exitcode == 0, "the failed assertion is on stderr"


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.CRASHED, Outcome.MEMORY])
def test_passing_outcomes_are_not_kept(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([Raster(outcome), SimulatorError("no"), Raster(Outcome.NOT_SVG, detail="first"), Raster(outcome)])

    class Scripted(Pool):
        def draw(self, document: str | bytes) -> Raster:
            if isinstance(answer := next(answers), Exception):
                raise answer
            return answer

    monkeypatch.setattr(pool, "_pool", Scripted())
    pool._kept.cache_clear()
    assert rasterise(GOOD).outcome is outcome
    with pytest.raises(SimulatorError):
        rasterise(GOOD)
    assert [rasterise(GOOD).detail for _ in range(2)] == ["first", "first"]
    pool._kept.cache_clear()
