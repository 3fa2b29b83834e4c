"""A small share of a benchmark, with little to generate and no charts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pivot
import pytest
from pivot.datasets.store.splits import TRAIN
from pivot.datasets.store.store import Store
from pivot.solvers.base import Proof
from pivot.solvers.closure.prover import GymProver
from pivot.tests.training.conftest import no_curves, one_thread  # noqa: F401 - fixtures
from pivot.training.evaluation import episodes, level_posterior, tables
from pivot.training.evaluation.boosted_trees import Fitting
from pivot.training.evaluation.episodes import Certified, read_episodes, store_of
from pivot.training.evaluation.items import Benchmark
from pivot.training.evaluation.make import make_benchmark


@pytest.fixture(scope="session", autouse=True)
def few_levels() -> Iterator[None]:
    """Fewer generated levels for twins and for the baseline that guesses levels; thousands take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_posterior, "LEVELS", 400)
        patch.setattr(episodes, "LEAST", 100)
        yield


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
