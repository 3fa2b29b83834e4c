"""Starts as in the published tasks: 2.51 to 3.00 m from the target, three translations as the crow flies."""

from functools import lru_cache

import numpy as np
import pytest
from pivot.core.plugins import explain
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.state import parse_state
from pivot.rollouts.plan import plan_tasks
from pivot.solvers.navigation.solver import NavigationSolver
from pydantic import ValidationError

DECILES = (2.51, 2.53, 2.57, 2.61, 2.65, 2.70, 2.80, 2.86, 2.91, 2.97, 3.00)
"""Deciles of the 60 published start distances, metres."""


@lru_cache(maxsize=2)
def distances(starts: str) -> list[float]:
    config = NavigationConfig.model_validate({"starts": starts})
    levels = plan_tasks(NavigationEnv, config, 0, 120)[::2]
    return [parse_state(task.initial_state).distance() for task in levels]


def test_published_starts_have_the_published_distances() -> None:
    actual = distances("published")
    assert all(2.51 <= metres <= 3.0 for metres in actual)
    assert {NavigationSolver().needed(metres) for metres in actual} == {3}
    assert np.abs(np.quantile(actual, np.linspace(0, 1, 11)) - DECILES).max() < 0.1
    assert max(distances("varied")) > 4, "the default is another distribution"


def test_levels_without_the_setting_keep_their_ids() -> None:
    config = NavigationConfig()
    assert config.digest() == "64483a4e"
    assert "starts" not in config.decisive()
    assert NavigationConfig.model_validate(config.decisive()) == config
    other = NavigationConfig(starts="published")
    assert other.min_steps == 3
    assert NavigationConfig.model_validate(other.decisive()) == other
    assert other.digest() != config.digest()


def test_task_files_have_starts_of_their_own() -> None:
    with pytest.raises(ValidationError) as raised:
        NavigationConfig.model_validate({"backend": "thor", "thor_version": "5", "starts": "published"})
    assert "the task files define the starts" in explain(raised.value, "setting ", NavigationConfig)
