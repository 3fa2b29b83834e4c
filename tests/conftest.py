"""Small stores that many tests read: built once a test process, never written to."""

from pathlib import Path

import pytest
from pivot.tests.stores import build_small, build_tiny


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, three tasks of eight rollouts each, two shards each. Copy it before changing anything."""
    return build_small(tmp_path_factory.mktemp("small") / "store")


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both environments, two tasks of two rollouts each: quick to verify. Copy it before changing anything."""
    return build_tiny(tmp_path_factory.mktemp("tiny") / "store")
