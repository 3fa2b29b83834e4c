"""The replayers of one labelling call: no other code uses their environments, and they are closed at its end."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.labeling.filters import ReplayFilter
from pivot.labeling.label import label_episodes
from pivot.labeling.replay import MOST_REPLAYERS, Replays
from pivot.solvers.frozenlake.solver import FrozenLakeSolver
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.labeling.episodes import random_failures


def test_labels_made_side_by_side_are_those_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a flow whose task runner starts every shard at once in a thread of its own."""
    step = FrozenLakeEnv.step

    def unhurried(self: FrozenLakeEnv, action: Any) -> Any:
        time.sleep(0.0005)  # another thread's turn
        return step(self, action)

    monkeypatch.setattr(FrozenLakeEnv, "step", unhurried)
    shards = [random_failures("frozenlake", 6, seed=seed, horizon=6) for seed in range(4)]
    together = threading.Barrier(len(shards))

    def label(shard: Any) -> Any:
        together.wait(PATIENCE)
        return label_episodes(shard, FrozenLakeSolver(), None, [ReplayFilter()], "1")

    with ThreadPoolExecutor(len(shards)) as threads:
        labels = list(threads.map(label, shards))
    rejected = [each.reject_reasons for made in labels for each in made if not each.accepted]
    assert rejected == []


def test_environments_are_closed_with_the_call_that_owns_them(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("frozenlake", 5)
    made, closed = [], []
    monkeypatch.setattr(FrozenLakeEnv, "close", lambda self: closed.append(id(self)))
    original = FrozenLakeEnv.from_settings.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(FrozenLakeEnv, "from_settings", classmethod(lambda *call: made.append(1) or original(*call)))
    label_episodes(episodes, FrozenLakeSolver(), None, [ReplayFilter()], "1")
    assert (len(made), len(closed)) == (1, 1), "one environment serves all episodes of one configuration"
    with Replays() as replays:
        first = replays.of(episodes[0])
        assert replays.of(episodes[1]) is first
        for horizon in range(20, 20 + MOST_REPLAYERS):
            replays.of(replace(episodes[0], env_config={**episodes[0].env_config, "horizon": horizon}))
        assert len(closed) == 2, "the one that was not asked for the longest is given up"
        assert replays.of(episodes[0]) is not first
    assert len(closed) == len(made)
