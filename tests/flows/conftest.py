"""What the tests of flows share: a process to kill runs in."""

from collections.abc import Iterator

import pytest
from pivot.tests.flows.victim import Victim


@pytest.fixture(scope="session")
def victim() -> Iterator[Victim]:
    """One process for all runs that are to be killed; their tests are in the group `kill`, on one test worker."""
    with Victim() as process:
        yield process
