"""A small model that has read the small store; no hub."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def small_model(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2.5-VL on disk. Copy it before changing anything."""
    from pivot.tests.training.small import save_small_model

    return save_small_model(tmp_path_factory.mktemp("model") / "tiny", small_store / "dataset")
