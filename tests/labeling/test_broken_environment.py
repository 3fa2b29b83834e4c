"""An environment that breaks during a label's replay: that episode is rejected, and the others continue."""

from collections.abc import Callable
from typing import Any

import pytest
from pivot.core.errors import ConfigError
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.environments.sokoban.environment import SokobanEnv
from pivot.labeling.domains.sokoban import SokobanDeadlockFilter
from pivot.labeling.filters import ReplayFilter
from pivot.labeling.label import label_episodes
from pivot.labeling.writers.template import TemplateWriter
from pivot.solvers.frozenlake.solver import FrozenLakeSolver
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.labeling.episodes import random_failures
from pivot.tests.labeling.reasons import count_reject_reasons


def breaks_at(method: str, calls: list[int], error: Callable[[], Exception]) -> Any:
    """Replace a method of the environment by one that raises in the numbered calls."""
    original = getattr(FrozenLakeEnv, method)
    count = iter(range(1_000_000))

    def broken(self: FrozenLakeEnv, *arguments: Any, **named: Any) -> Any:
        if next(count) in calls:
            self._turn = 10**6  # what a simulator that broke leaves behind is worth nothing
            raise error()
        return original(self, *arguments, **named)

    return broken


@pytest.mark.parametrize("method", ["reset", "step", "encode_action", "frame_key"])
def test_a_broken_environment_rejects_one_label(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("frozenlake", 5, seed=3, horizon=10)
    monkeypatch.setattr(FrozenLakeEnv, method, breaks_at(method, [3], lambda: RuntimeError("the simulator is gone")))
    labels = label_episodes(episodes, FrozenLakeSolver(), TemplateWriter(), [ReplayFilter()], "1")
    rejected = [label for label in labels if not label.accepted]
    assert len(rejected) == 1
    assert count_reject_reasons(labels) == {"replay": 1}
    detail = str(rejected[0].reject_reasons[0])
    assert detail == "broken: the environment raised RuntimeError: the simulator is gone"
    # Without the fault all is well again: nothing of the broken environment is kept.
    monkeypatch.undo()
    again = label_episodes(episodes, FrozenLakeSolver(), TemplateWriter(), [ReplayFilter()], "1")
    assert all(label.accepted for label in again)


def test_rules_that_replay_for_a_fact_leave_it_to_the_replay_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("sokoban", 30, seed=4, horizon=10)
    always = list(range(1000))
    monkeypatch.setattr(SokobanEnv, "step", breaks_at("step", always, lambda: OSError("pipe closed")))
    rules = [ReplayFilter(), SokobanDeadlockFilter()]
    labels = label_episodes(episodes, SokobanSolver(), TemplateWriter(), rules, "1")
    assert "deadlock" in {label.failure_mode for label in labels}
    assert count_reject_reasons(labels) == {"replay": 30}


def test_settings_that_can_never_work_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("frozenlake", 1, seed=5, horizon=10)
    for method in ("reset", "step"):
        with monkeypatch.context() as patch:
            patch.setattr(FrozenLakeEnv, method, breaks_at(method, [0], lambda: ConfigError("no simulator installed")))
            with pytest.raises(ConfigError, match="no simulator"):
                label_episodes(episodes, FrozenLakeSolver(), None, [ReplayFilter()], "1")
