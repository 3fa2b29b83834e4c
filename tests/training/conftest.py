"""A small model trained on the small store's texts; no hub."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pivot
import pytest
from pivot.datasets.store.splits import TRAIN
from pivot.datasets.store.store import Store
from pivot.solvers.base import Proof
from pivot.solvers.closure.prover import GymProver
from pivot.training.evaluation import episodes, level_posterior, tables
from pivot.training.evaluation.boosted_trees import Fitting
from pivot.training.evaluation.episodes import Certified, read_episodes, store_of
from pivot.training.evaluation.items import Benchmark
from pivot.training.evaluation.make import make_benchmark


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
def few_levels() -> Iterator[None]:
    """Fewer generated levels for twins and for the baseline that guesses levels; thousands take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_posterior, "LEVELS", 400)
        patch.setattr(episodes, "LEAST", 100)
        yield


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


CHART = tables.results_chart


@pytest.fixture(scope="session", autouse=True)
def no_charts() -> Iterator[None]:
    """Draw no charts, which take longer than the runs here; a test of the chart sets :data:`CHART` back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "results_chart", lambda _: b"")
        yield


@dataclass(frozen=True)
class Made:
    """A benchmark with the episodes of the other half of the levels."""

    benchmark: Benchmark
    fitting: Mapping[str, Sequence[Certified]]
    """Episodes that the baselines are fitted on, by environment."""

    def episodes(self, env: str, log: str) -> list[Fitting]:
        """Return the training episodes in one form of the log."""
        return [each.fitting(log) for each in self.fitting[env]]


SHARE = 0.07
BENCHMARK_LEVELS: dict[str, int] = dict.fromkeys(("sokoban", "frozenlake"), round(160 / SHARE))
"""So many that boosted trees learn from half of them."""


@pytest.fixture(scope="session")
def made_benchmark(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small share of a benchmark of two environments, with the baselines that need no library, and their episodes."""
    return _make(tmp_path_factory.mktemp("benchmark"), BENCHMARK_LEVELS)


@pytest.fixture(scope="session")
def benchmark(made_benchmark: Made) -> Benchmark:
    """The benchmark alone."""
    return made_benchmark.benchmark


LAVA = "gym:MiniGrid-LavaGapS7-v0"


@pytest.fixture(scope="session")
def gym_benchmark(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A benchmark with a gymnasium environment."""
    pytest.importorskip("minigrid")
    return _make(tmp_path_factory.mktemp("gym"), {"frozenlake": 120, LAVA: 110})


def _make(root: Path, levels: dict[str, int]) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        if LAVA in levels:  # a MiniGrid's search and proofs take long
            patch.setattr(GymProver, "prove", lambda *_: Proof(undecided="not here"))
            patch.setattr(episodes, "LEAST", 8)
            patch.setattr(episodes, "FITTING", 3)
            settings = {**episodes.SETTINGS, LAVA: {"kwargs": {"tile_size": 16}, "horizon": 12}}
            patch.setattr(episodes, "SETTINGS", settings)
        made = make_benchmark(root, pivot.build, levels=levels, share=SHARE, learned=False)
    return Made(made, {env: read_episodes(Store.open(root / store_of(env)), env)[TRAIN] for env in levels})
