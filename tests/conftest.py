"""Shared fixtures: temporary folders, stores and a database built once per test process, no deadlines."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import settings
from pivot.flows.engines import local
from pivot.models import pacing
from pivot.tests.core.object_server import ObjectServer, object_server
from pivot.tests.stores import Patient, build_small, build_tiny, copy_store

# No deadline per example: on a busy machine it would fail by chance.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes; all tests need 0.5 GB, and folders of passed tests are removed at once."""


def pytest_configure() -> None:
    """Put temporary folders into memory if there is room, because a store syncs every file to disk twice.

    ``python -m pytest`` puts this folder on the path, whose ``solvers`` would hide the tests of that name.
    """
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != Path(__file__).resolve().parents[1]]
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected out of garbage collection: it stays anyway, and a search of states collects often."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Keep tests that share a module fixture on one test worker; assign the others freely."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            fixtures = [each for made in item._fixtureinfo.name2fixturedefs.values() for each in made]
            if any(fixture.scope == "module" for fixture in fixtures):
                item.add_marker(pytest.mark.xdist_group(item.path.stem))
    yield
    if getattr(config.option, "loadgroup", False):  # in a test worker
        for item in items:
            _tell_group(item)


def _tell_group(item: pytest.Item) -> None:
    """Append the group to the node id, where the scheduler reads it.

    pytest-xdist 3.8 does so in an attribute that pytest 9.2 no longer reads; else tests have no groups.
    """
    groups = {mark.args[0] for mark in item.iter_markers("xdist_group")}
    end = f"@{'_'.join(sorted(groups))}"
    if groups and not item.nodeid.endswith(end):
        item._id = type(item._id).parse(item.nodeid + end)
        assert item.nodeid.endswith(end), "tests of one group would run on all test workers"


local.available_cores = lambda: 1
"""Tests start worker processes only where they name a number of them: the start of one takes longer than most tests."""

collect_ignore = ["external/corridor"]
"""The example plugin of docs/how-to/extending.md; `external/test_external.py` installs it and runs its tests."""


@pytest.fixture(autouse=True)
def _slots_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that stand for worker processes share slots in this process, where no later test may find them."""
    monkeypatch.setattr(pacing, "_shared", None)


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """A copy of the module's store ``built`` that a test may change."""
    return copy_store(built, tmp_path / "copy")


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of Prefect's records for runs with a cache two levels up, so that its database is set up once (10 s).

    One server at a time may use it: the tests are in the group `prefect`, on one test worker.
    """
    home = tmp_path_factory.mktemp("cache") / "pivot" / f"prefect-{version('prefect')}"
    home.mkdir(parents=True)
    return home


@pytest.fixture(scope="session")
def _object_server() -> Iterator[ObjectServer]:
    with object_server() as server:
        yield server


@pytest.fixture
def s3(_object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """An S3-compatible server on loopback, named by the environment, with one bucket."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in _object_server.environment.items():
        monkeypatch.setenv(name, value)
    return _object_server


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, three tasks of eight rollouts each, two shards each. Copy it before changing anything."""
    return build_small(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, two tasks with two rollouts each: quick to verify. Copy it before changing anything."""
    return build_tiny(tmp_path_factory.mktemp("tiny") / "store")


@pytest.fixture(scope="session")
def _tiny_copy(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return Patient(tiny_store, tmp_path_factory.mktemp("patient") / "store")


@pytest.fixture
def patient(_tiny_copy: Patient) -> Iterator[Patient]:
    """A copy of the tiny store to damage; it is restored afterwards."""
    yield _tiny_copy
    _tiny_copy.heal()


@pytest.fixture(scope="session")
def _single_copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Patient]:
    folder = tmp_path_factory.mktemp("single")
    names = ("sokoban", "frozenlake")
    return {name: Patient(build_tiny(folder / name, name), folder / f"{name} copy") for name in names}


@pytest.fixture
def patients(_single_copies: dict[str, Patient]) -> Iterator[dict[str, Patient]]:
    """A tiny store per environment to damage, quicker to verify; they are restored afterwards."""
    yield _single_copies
    for patient in _single_copies.values():
        patient.heal()


@pytest.fixture(scope="session")
def _lake_copy(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    folder = tmp_path_factory.mktemp("lake")
    runs = {"frozenlake": {"tasks": 1, "settings": {}}}
    return Patient(build_tiny(folder / "source", environments=runs, rollouts=3), folder / "copy")


@pytest.fixture
def lake(_lake_copy: Patient) -> Iterator[Patient]:
    """One level, three rollouts: the quickest store to verify; it is restored afterwards."""
    yield _lake_copy
    _lake_copy.heal()
