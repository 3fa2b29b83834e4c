"""Fixtures of runs that are cut short: a process to kill them in, a line to an object store, a small disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pivot.core.storage import objects
from pivot.tests.core.object_server import Line, ObjectServer, environment
from pivot.tests.disks import mounted_disk
from pivot.tests.faults.victim import Victim


@pytest.fixture(scope="session")
def victim() -> Iterator[Victim]:
    """One process for all runs that are killed; their tests are in the group `kill`, on one test worker."""
    with Victim() as process:
        yield process


@pytest.fixture
def line(s3: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """A connection to an object store for this process, with short time limits."""
    made = Line(s3.port)
    for name, value in environment(made.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "_WORK", ({"timeout": "5s", "connect_timeout": "1s"}, 1.0))
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of variable size."""
    with mounted_disk(tmp_path / "disk") as place:
        yield place
