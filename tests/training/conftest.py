"""A small model trained on the small store's texts; no hub."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, so that sums have one order and no thread waits for another test's."""
    if find_spec("torch") is None:  # tests without the mark `train` do not need it
        yield
        return
    torch = import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def small_model(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2.5-VL on disk. Copy it before changing anything."""
    from pivot.tests.training.small import save_small_model

    return save_small_model(tmp_path_factory.mktemp("model") / "tiny", small_store / "dataset")


@pytest.fixture(scope="session", autouse=True)
def no_curves() -> Iterator[None]:
    """Draw no curves; a picture takes as long as an update here."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("torch") is not None:
            patch.setattr(import_module("pivot.training.policy_rl.loop"), "draw_curves", lambda *_: None)
        if find_spec("trl") is not None:
            for name in ("run", "trainer"):
                patch.setattr(import_module(f"pivot.training.analyzer_sft.{name}"), "draw_losses", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A player on disk that only knows the grammar of replies."""
    from pivot.tests.training.lake import save_grammatical

    return save_grammatical(tmp_path_factory.mktemp("player") / "start")
