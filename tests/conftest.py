"""What all tests share: where they write, small stores that are built once a test process, and no stop watch."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pivot.tests.stores import Patient, build_small, build_tiny

# A busy machine is slow now and then; a time limit for each example would fail by chance.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes; all tests together fill 0.5 GB, passed ones are cleared away at once."""


def pytest_configure() -> None:
    """Put temporary folders into memory where there is room: a store waits for the disk twice with every file."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


collect_ignore = ["external/corridor"]
"""The example of docs/extending.md: its tests run where it is installed, in `external/test_external.py`."""


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, three tasks of eight rollouts each, two shards each. Copy it before changing anything."""
    return build_small(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, two tasks of two rollouts each: quick to verify. Copy it before changing anything."""
    return build_tiny(tmp_path_factory.mktemp("tiny") / "store")


@pytest.fixture(scope="session")
def _tiny_copy(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return Patient(tiny_store, tmp_path_factory.mktemp("patient") / "store")


@pytest.fixture
def patient(_tiny_copy: Patient) -> Iterator[Patient]:
    """A copy of the tiny store to damage; it is healed afterwards."""
    yield _tiny_copy
    _tiny_copy.heal()


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    """One level, three rollouts: the quickest store to verify."""
    folder = tmp_path_factory.mktemp("lake")
    runs = {"frozenlake": {"tasks": 1, "settings": {}}}
    return Patient(build_tiny(folder / "source", environments=runs, rollouts=3), folder / "copy")
