"""Fixtures of the flow tests: a process to kill runs in."""

from collections.abc import Iterator

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
