"""Fixtures of the flow tests: a process to kill runs in, a line to an object store, a small disk."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pivot.storage import objects
from pivot.tests.flows.victim import Victim
from pivot.tests.storage.object_server import Line, ObjectServer, environment


@pytest.fixture(scope="session")
def victim() -> Iterator[Victim]:
    """One process for all runs that are to be killed; their tests are in the group `kill`, on one test worker."""
    with Victim() as process:
        yield process


@pytest.fixture
def line(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """A line to an object store by which this process reaches it, and little patience."""
    made = Line(s3.port)
    for name, value in environment(made.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "_WORK", ({"timeout": "5s", "connect_timeout": "1s"}, 1.0))
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of its own, whose size can be changed."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"only root may mount a small disk: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
