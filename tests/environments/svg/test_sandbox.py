"""The sandbox against hostile documents: nothing is read or contacted, every call ends soon, workers keep working."""

import ctypes
import os
import random
import re
import select
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from pivot.environments.svg.icons import draw_target
from pivot.environments.svg.sandbox.process import Worker
from pivot.environments.svg.sandbox.raster import SIDE, Outcome, Raster
from pivot.tests.environments.svg.drawing import draw_alone, same
from pivot.tests.environments.svg.hostile import hostile_documents, svg, writing

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads limits and memory from /proc")

CALL_SECONDS = 50.0
"""Less than the 60 s after which an unresponsive worker is given up."""
WORKER_BYTES = 10**9
GOOD = writing()


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


LATER = re.compile(
    r"number .* (1e999|inf|1e-320|999\.\.\.|1e|-|1%%)$|mutation [1-5]\d|sticky (view|span|link|twice|clip)|"
    r"sticky face .*(italic|oblique)|style |text long|path of 500|image 2\^31"
)
"""Documents for `make test WHAT=long`: one more number, damage, large text or time-out of a kind that is left."""


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.long)])
def siege(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Siege:
    """Draw hostile documents on two workers side by side, each followed by a good one."""
    canary = tmp_path_factory.mktemp("canary") / "canary.svg"
    canary.write_text(GOOD)
    listener, watch = Listener(), Watch(canary)
    everything = hostile_documents(listener.address, str(canary)).items()
    documents = [each for each in everything if request.param == "all" or not LATER.match(each[0])]
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
    actual = Siege(calls, listener.connections, watch.events())
    assert len(calls) == len(documents)
    canary.read_text()
    assert watch.events() > 0, "the watch sees no access"
    listener.close()
    watch.close()
    return actual


def peak(worker: Worker) -> int:
    """Return the largest address space that the worker ever had, bytes; its resident memory is a part of that."""
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmPeak:"))
    return int(line.split()[1]) * 1024


def test_nothing_was_contacted_or_read(siege: Siege) -> None:
    """Catch a document that opens a file or a connection, by real ones that count."""
    assert siege.connections == 0
    assert siege.reads == 0


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
    for name, outcome in outcomes.items():
        if name.startswith(("slow", "encoding")):
            assert outcome is Outcome.OK, name
        if name.startswith("sticky"):
            assert outcome is Outcome.RENDER_ERROR, name


def test_embedded_pictures_are_drawn_or_named_as_what_they_are(siege: Siege) -> None:
    for call in siege.calls:
        if call.name.startswith("picture"):
            drawn = call.name.split()[1] in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "PPM")
            assert call.raster.outcome is (Outcome.OK if drawn else Outcome.RENDER_ERROR), call.name
            assert drawn or "none of the formats PNG, JPEG" in call.raster.detail


def test_no_explanation_reveals_this_machine(siege: Siege) -> None:
    """It names no path, no address, and nothing that could not be loaded."""
    telling = re.compile(r"/(usr|root|home|lib)/|site-packages|0x[0-9a-f]{6}|No module|Errno \d")
    assert [call.raster.detail for call in siege.calls if telling.search(call.raster.detail)] == []


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_pixels_are_those_of_cairosvg() -> None:
    import cairosvg
    from pivot.core.images import decode

    with Worker() as worker:
        for seed in range(12):
            document = draw_target(random.Random(seed))
            png = cairosvg.svg2png(document.encode(), output_width=SIDE, output_height=SIDE, background_color="white")
            assert png is not None
            pixels = worker.draw(document).pixels
            assert pixels is not None
            assert np.array_equal(pixels, decode(png))


STYLES = ('font-family="serif"', 'font-family="No Such Font"', 'style="font: 20px monospace"', "")


PLACES = (
    "{}",
    '<pattern id="p" width="50" height="99" patternUnits="userSpaceOnUse">{}</pattern>'
    '<rect width="99" height="99" fill="url(#p)"/>',
    '<mask id="m"><g fill="#fff">{}</g></mask><rect width="99" height="99" mask="url(#m)"/>',
)


def test_text_is_drawn_in_one_family() -> None:
    with Worker() as worker:
        for place in PLACES:
            texts = [f'<text y="50" font-size="20" {style}>Ag</text>' for style in STYLES]
            first, *others = [worker.draw(svg(place.format(text))).pixels for text in texts]
            assert all(same(first, other) for other in others), place


def test_the_encoding_that_a_text_declares_is_ignored() -> None:
    """A document arrives as decoded text, so this changes neither outcome nor letters."""
    document = svg('<text y="50" font-size="30">\u00e9\u00df</text>')
    with Worker() as worker:
        plain = worker.draw(document).pixels
        for encoding in ("latin-1", "windows-1252", "shift_jis", "utf-16", "utf8", "x-none"):
            declared = f'<?xml version="1.0" encoding="{encoding}"?>{document}'
            assert same(worker.draw(declared).pixels, plain), encoding
