"""The sandbox against hostile documents: nothing is read or contacted, every call ends soon, the workers stay well."""

import ctypes
import multiprocessing
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from pivot.environments.svg.sandbox import pool, worker
from pivot.environments.svg.sandbox.pool import (
    MEMORY_BYTES,
    SIDE,
    Outcome,
    Pool,
    Raster,
    RasterCache,
    Worker,
    rasterise,
)
from pivot.environments.svg.targets.icons import draw_target
from pivot.tests.environments.svg.child import CIRCLE, draw_in_child
from pivot.tests.environments.svg.hostile import hostile_documents, svg

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads limits and memory from /proc")

CALL_SECONDS = 2.0
WORKER_BYTES = 10**9
GOOD = svg('<rect x="10" y="20" width="50" height="60" fill="#08c"/>')
ENDLESS = svg('<circle r="1e308"/>')


class Listener:
    """A server on the loopback that counts connections."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return
            self.connections += 1

    def close(self) -> None:
        self._socket.close()


class Watch:
    """Counts opens and reads of one file, by the kernel's inotify."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init()
        access_or_open = 0x1 | 0x20
        assert libc.inotify_add_watch(self._descriptor, os.fsencode(path), access_or_open) >= 0

    def events(self) -> int:
        count = 0
        while select.select([self._descriptor], [], [], 0)[0]:
            count += len(os.read(self._descriptor, 4096)) // 16
        return count

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass
class Call:
    name: str
    document: str | bytes
    raster: Raster
    seconds: float
    peak_bytes: int
    healthy: bool


@dataclass
class Siege:
    calls: list[Call]
    connections: int
    reads: int


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Siege:
    """Draw every hostile document on two workers side by side, each followed by a good one."""
    canary = tmp_path_factory.mktemp("canary") / "canary.svg"
    canary.write_text(GOOD)
    listener, watch = Listener(), Watch(canary)
    documents = list(hostile_documents(listener.address, str(canary)).items())
    expected = draw_alone(GOOD)
    calls: list[Call] = []

    def work(share: list[tuple[str, str | bytes]]) -> None:
        with Worker() as worker:
            assert worker.draw(GOOD).outcome is Outcome.OK
            for name, document in share:
                started = monotonic()
                raster = worker.draw(document)
                seconds = monotonic() - started
                after = worker.draw(GOOD).pixels
                healthy = same(after, expected)
                calls.append(Call(name, document, raster, seconds, peak(worker), healthy))

    threads = [threading.Thread(target=work, args=(documents[k::2],)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Siege(calls, listener.connections, watch.events())
    assert len(calls) == len(documents)
    listener.close()
    watch.close()
    return found


def draw_alone(document: str) -> np.ndarray:
    with Worker() as worker:
        pixels = worker.draw(document).pixels
    assert pixels is not None
    return pixels


def same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def peak(worker: Worker) -> int:
    """Return the largest address space that the worker ever had, bytes; its resident memory is a part of that."""
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmPeak:"))
    return int(line.split()[1]) * 1024


def test_the_hostile_set_is_large(siege: Siege) -> None:
    assert len(siege.calls) >= 300
    assert {call.raster.outcome for call in siege.calls} == set(Outcome), "every kind of outcome should occur"


def test_nothing_was_contacted_or_read(siege: Siege) -> None:
    assert siege.connections == 0
    assert siege.reads == 0


def test_the_detectors_detect(tmp_path: Path) -> None:
    """The test above could fail: the listener and the watch see what they are there to see."""
    listener = Listener()
    host, port = listener.address.split(":")
    socket.create_connection((host, int(port))).close()
    for _ in range(100):
        sleep(0.01)
        if listener.connections:
            break
    assert listener.connections == 1
    listener.close()
    file = tmp_path / "file"
    file.write_text("x")
    watch = Watch(file)
    assert watch.events() == 0
    file.read_text()
    assert watch.events() > 0
    watch.close()


def test_every_call_ends_soon(siege: Siege) -> None:
    """A busy machine may delay a call; a document that is really slow is slow each time."""
    slow = [call for call in siege.calls if call.seconds > CALL_SECONDS]
    again = {call.name: min(_seconds_alone(call.document) for _ in range(3)) for call in slow}
    assert {name: seconds for name, seconds in again.items() if seconds > CALL_SECONDS} == {}


def _seconds_alone(document: str | bytes) -> float:
    with Worker() as worker:
        worker.draw(GOOD)
        started = monotonic()
        worker.draw(document)
        return monotonic() - started


def test_no_worker_outgrows_its_memory(siege: Siege) -> None:
    assert [(call.name, call.peak_bytes) for call in siege.calls if call.peak_bytes > WORKER_BYTES] == []


def test_the_workers_stay_well(siege: Siege) -> None:
    assert [call.name for call in siege.calls if not call.healthy] == []


def test_outcomes_are_typed(siege: Siege) -> None:
    for call in siege.calls:
        raster = call.raster
        assert (raster.pixels is None) == (raster.outcome is not Outcome.OK), call.name
        assert raster.pixels is None or (raster.pixels.shape == (SIDE, SIDE, 3) and not raster.pixels.flags.writeable)
        assert raster.detail or raster.outcome is Outcome.OK, call.name
        assert len(raster.detail) < 500
    outcomes = {call.name: call.raster.outcome for call in siege.calls}
    assert outcomes["nothing"] is Outcome.EMPTY
    assert outcomes["path of 50 MB"] is outcomes["gzip bomb"] or outcomes["path of 50 MB"] is Outcome.TOO_LARGE
    assert outcomes["gzip"] is outcomes["nul"] is outcomes["latin"] is Outcome.NOT_TEXT
    assert outcomes["html"] is outcomes["two roots"] is Outcome.NOT_SVG
    for name, outcome in outcomes.items():
        if name.startswith("entity") and name not in ("entity undefined", "entity parameter file in text"):
            assert outcome is Outcome.FORBIDDEN, name
    assert outcomes["use doubling"] is outcomes["number circle 1e308"] is Outcome.TIMEOUT
    assert outcomes["pattern huge"] is Outcome.MEMORY


# --- the rights of a worker -------------------------------------------------------------------------------------------


def test_a_worker_can_open_nothing(tmp_path: Path) -> None:
    """After the lock, no code in the process gets a descriptor or a child: neither Python nor C."""
    attempt = f"""
import importlib.util, os, socket, subprocess
spec = importlib.util.spec_from_file_location("worker", {worker.__file__!r})
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
attempts = {{
    "read": lambda: open({str(tmp_path / "there")!r}),
    "write": lambda: open({str(tmp_path / "new")!r}, "w"),
    "descriptor": lambda: os.open("/", os.O_RDONLY),
    "socket": lambda: socket.socket(),
    "pair": lambda: socket.socketpair(),
    "process": lambda: subprocess.run(["true"], stdout=subprocess.PIPE),
    "pipe": lambda: os.pipe(),
    "copy": lambda: os.dup(1),
    "memory": lambda: bytearray(10**9),
}}
worker._lock_in({MEMORY_BYTES})
for name, attempt in attempts.items():
    try:
        attempt()
    except (OSError, MemoryError):
        print(name)
"""
    (tmp_path / "there").write_text("x")
    result = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, check=True, timeout=60)
    names = "read write descriptor socket pair process pipe copy memory"
    assert result.stdout.split() == names.split()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_running_worker_has_these_limits() -> None:
    with Worker() as worker:
        worker.draw(GOOD)
        limits = Path(f"/proc/{worker.pid}/limits").read_text()
        rows = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()[1:]}
        assert rows["Max open files"] == ["3", "3"]
        assert rows["Max address space"] == [str(MEMORY_BYTES)] * 2
        assert rows["Max processes"] == rows["Max file size"] == rows["Max core file size"] == ["0", "0"]
        assert len(list(Path(f"/proc/{worker.pid}/fd").iterdir())) == 3
        assert b"HOME=" not in Path(f"/proc/{worker.pid}/environ").read_bytes(), "secrets of the parent stay there"


def test_statuses_mean_the_same_on_both_sides() -> None:
    assert worker.STATUSES == pool._STATUSES
    assert set(worker.STATUSES) <= set(Outcome)


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_pixels_are_those_of_cairosvg() -> None:
    import cairosvg
    from pivot.images import decode

    with Worker() as worker:
        for seed in range(12):
            document = draw_target(random.Random(seed))
            png = cairosvg.svg2png(document.encode(), output_width=SIDE, output_height=SIDE, background_color="white")
            assert png is not None
            pixels = worker.draw(document).pixels
            assert pixels is not None
            assert np.array_equal(pixels, decode(png))


def test_whatever_was_drawn_before_does_not_matter() -> None:
    documents = [draw_target(random.Random(seed)) for seed in range(8)]
    with Worker() as worker:
        first = [worker.draw(document).pixels for document in documents]
        for document in (ENDLESS, svg("<text y='9'>x</text>"), "<svg"):
            worker.draw(document)
        again = [worker.draw(document).pixels for document in reversed(documents)]
    for one, other in zip(first, reversed(again), strict=True):
        assert same(one, other)


def test_text_is_drawn_in_one_family() -> None:
    with Worker() as worker:
        pictures = [
            worker.draw(svg(f'<text y="50" font-size="{size}" {style}>Ag</text>')).pixels
            for size in (3, 20)
            for style in ('font-family="serif"', 'font-family="No Such Font"', 'style="font: 20px monospace"', "")
        ]
    assert all(picture is not None for picture in pictures)
    assert len({picture.tobytes() for picture in pictures[:2] if picture is not None}) == 1


# --- life and death ---------------------------------------------------------------------------------------------------


def test_a_killed_worker_is_replaced() -> None:
    with Worker() as worker:
        expected = worker.draw(GOOD).pixels
        for kind in (signal.SIGKILL, signal.SIGSEGV):
            first = worker.pid
            assert first is not None
            os.kill(first, kind)
            while (Path(f"/proc/{first}/stat")).exists() and "Z" not in Path(f"/proc/{first}/stat").read_text().split()[
                2
            ]:
                sleep(0.01)
            assert same(worker.draw(GOOD).pixels, expected)
            assert worker.pid != first


def test_a_stopped_worker_times_out() -> None:
    """The parent's clock: a process that does nothing uses no processor time."""
    with Worker() as worker:
        worker.draw(GOOD)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        started = monotonic()
        raster = worker.draw(GOOD)
        assert raster.outcome is Outcome.TIMEOUT
        assert monotonic() - started < CALL_SECONDS
        assert worker.draw(GOOD).outcome is Outcome.OK


def test_a_closed_worker_leaves_no_process() -> None:
    worker = Worker()
    worker.draw(GOOD)
    pid = worker.pid
    worker.close()
    worker.close()
    assert not Path(f"/proc/{pid}").exists()
    assert worker.draw(GOOD).outcome is Outcome.OK
    worker.close()


def test_a_pool_keeps_the_order_and_loses_only_the_bad_ones() -> None:
    documents = [draw_target(random.Random(seed)) for seed in range(10)]
    mixed = [*documents[:5], ENDLESS, "", *documents[5:]]
    with Pool(2) as pool:
        rasters = pool.draw_all(mixed)
        assert len(set(pool.pids)) == 2
    assert [raster.outcome for raster in rasters] == ["ok"] * 5 + ["timeout", "empty"] + ["ok"] * 5
    with Worker() as worker:
        for document, raster in zip(mixed, rasters, strict=True):
            if raster.pixels is not None:
                assert same(worker.draw(document).pixels, raster.pixels)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_have_workers_of_their_own(method: str) -> None:
    mine = rasterise(GOOD).pixels
    assert mine is not None
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=draw_in_child, args=(queue,))
    child.start()
    pid, pixels = queue.get(timeout=240)
    child.join(60)
    assert child.exitcode == 0
    assert pid is not None
    assert pid != pool._worker.pid
    deadline = monotonic() + 20
    while Path(f"/proc/{pid}").exists():  # it ends by itself when its pipe does
        assert monotonic() < deadline, "the child's worker should end with the child"
        sleep(0.02)
    expected = draw_alone(CIRCLE)
    assert pixels == expected.tobytes()
    raster = pool._worker.draw(GOOD)
    assert same(raster.pixels, mine), "the parent's worker is untouched"


def test_a_worker_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "worker.py"
    broken.write_text("import no_such_library")
    monkeypatch.setattr(pool, "_WORKER", broken)
    with Worker() as worker, pytest.raises(RuntimeError, match="cairosvg"):
        worker.draw(GOOD)


# --- the cache --------------------------------------------------------------------------------------------------------


def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    cache = RasterCache(3)
    for key in "abcd":
        cache.put(key, Raster(Outcome.NOT_SVG, detail=key))
        cache.get("b")
    assert len(cache) == 3
    assert cache.get("a") is None
    assert [cache.get(key) is not None for key in "bcd"] == [True, True, True]


def test_passing_outcomes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Callable[[], Raster]] = [
        lambda: Raster(Outcome.TIMEOUT, detail="busy"),
        lambda: Raster(Outcome.NOT_SVG, detail="first"),
        lambda: Raster(Outcome.NOT_SVG, detail="second"),
    ]
    calls: Iterator[Callable[[], Raster]] = iter(answers)
    monkeypatch.setattr(pool._worker, "draw", lambda _document: next(calls)())
    document = svg("<!-- never drawn before -->")
    assert [rasterise(document).detail for _ in range(3)] == ["busy", "first", "first"]
