"""What the tests of flows share: a process to kill runs in, and a folder for Prefect's records."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from pivot.tests.flows.victim import Victim


@pytest.fixture(scope="session")
def victim() -> Iterator[Victim]:
    """One process for all runs that are to be killed; their tests are in the group `kill`, on one test worker."""
    with Victim() as process:
        yield process


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs with a cache folder two levels up keep Prefect's records, so that its database is set up once (10 s).

    One server at a time may use it: the tests are in the group `prefect`, on one test worker.
    """
    home = tmp_path_factory.mktemp("cache") / "pivot" / f"prefect-{version('prefect')}"
    home.mkdir(parents=True)
    return home
