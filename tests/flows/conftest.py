"""Fixtures of the flow tests: a process to kill runs in, an object store, a small disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pivot.core.storage import objects
from pivot.models import pacing
from pivot.tests.core.object_server import Line, ObjectServer, environment
from pivot.tests.disks import mounted_disk
from pivot.tests.flows.victim import Victim
from pivot.tests.stores import copy_store


@pytest.fixture(scope="session")
def victim() -> Iterator[Victim]:
    """One process for all runs that are killed; their tests are in the group `kill`, on one test worker."""
    with Victim() as process:
        yield process


@pytest.fixture(autouse=True)
def _slots_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that stand for worker processes share slots in this process, where no later test may find them."""
    monkeypatch.setattr(pacing, "_shared", None)


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """A copy of the module's store ``built`` that a test may change."""
    return copy_store(built, tmp_path / "copy")


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
