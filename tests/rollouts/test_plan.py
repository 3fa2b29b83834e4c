"""Ids depend on every input and on nothing else; plans grow without changing."""

from dataclasses import replace
from typing import Any

import pytest
from pivot.core.errors import GenerationError
from pivot.core.identity import derive_seed
from pivot.environments.base import Task
from pivot.rollouts.base import episode_id, group_id, request_id
from pivot.rollouts.plan import plan_tasks
from pivot.tests.corridor import CorridorConfig, CorridorEnv

PROFILE = CorridorEnv.profile
CONFIG = CorridorConfig()
TASK = Task("t-1", 5, "A..G", "reach G")
POLICY: dict[str, Any] = {"policy_name": "p", "policy_config": {"temperature": 1.0}}


def test_episode_id_is_stable() -> None:
    # A literal, because a changed scheme would make every stored episode unfindable.
    assert episode_id(PROFILE, CONFIG, TASK, 0, **POLICY) == "episode-v1-17305b8fbc49d640cf365591ebeb4214"
    assert group_id(PROFILE, CONFIG, TASK, **POLICY) == "group-v1-a8d1ab81294316280fd3a25f45d0b7c8"


def test_every_input_changes_the_episode_id() -> None:
    ids = [
        episode_id(PROFILE, CONFIG, TASK, 0, **POLICY),
        episode_id(PROFILE, CONFIG, TASK, 1, **POLICY),
        episode_id(replace(PROFILE, name="other"), CONFIG, TASK, 0, **POLICY),
        episode_id(replace(PROFILE, version="2"), CONFIG, TASK, 0, **POLICY),
        episode_id(PROFILE, CorridorConfig(horizon=6), TASK, 0, **POLICY),
        episode_id(PROFILE, CONFIG, replace(TASK, task_id="t-2"), 0, **POLICY),
        episode_id(PROFILE, CONFIG, replace(TASK, goal_idx=1), 0, **POLICY),
        episode_id(PROFILE, CONFIG, replace(TASK, eval_set="base"), 0, **POLICY),
        episode_id(PROFILE, CONFIG, replace(TASK, seed=6), 0, **POLICY),
        episode_id(PROFILE, CONFIG, TASK, 0, policy_name="q", policy_config=POLICY["policy_config"]),
        episode_id(PROFILE, CONFIG, TASK, 0, policy_name="p", policy_config={"temperature": 0.4}),
        group_id(PROFILE, CONFIG, TASK, **POLICY),
    ]
    assert len(set(ids)) == len(ids)


def test_turn_seeds_and_request_ids() -> None:
    seeds = {derive_seed(episode, t) for episode in ("a", "b") for t in range(50)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
    requests = {request_id(e, t, role) for e in ("a", "b") for t in (0, 1) for role in ("student", "teacher")}
    assert len(requests) == 8


def test_a_plan_grows_without_changing() -> None:
    config = CorridorConfig(length=16)
    long = plan_tasks(CorridorEnv, config, 3, 40)
    for count in (0, 1, 7, 39):
        assert plan_tasks(CorridorEnv, config, 3, count) == long[:count]
    assert plan_tasks(CorridorEnv, config, 4, 40) != long


def test_levels_of_a_plan_are_distinct_down_to_the_last_one() -> None:
    config = CorridorConfig(length=4)  # 2 starts, with and without a pit, in two directions: 8 levels
    tasks = plan_tasks(CorridorEnv, config, 0, 8)
    assert len({task.initial_state for task in tasks}) == 8
    assert len({task.task_id for task in tasks}) == 8
    with pytest.raises(GenerationError, match=r"no level for task 8 .* at most 8 tasks"):
        plan_tasks(CorridorEnv, config, 0, 9)
