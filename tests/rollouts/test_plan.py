"""Ids depend on every input and on nothing else; plans grow without changing; groups are full blocks."""

from dataclasses import replace
from typing import Any

import pytest
from pivot.core.errors import GenerationError
from pivot.core.identity import derive_seed
from pivot.core.records import from_row
from pivot.datasets.store.schema import EPISODES
from pivot.environments.base import Task
from pivot.environments.frozenlake.environment import FrozenLakeConfig, FrozenLakeEnv
from pivot.rollouts.base import Episode, Status, episode_id, group_id, request_id
from pivot.rollouts.plan import plan_tasks
from pivot.tests.corridor import CorridorConfig, CorridorEnv
from pivot.tests.rollouts.blocks import form_groups

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


def test_group_id_is_shared_by_the_samples_only() -> None:
    assert group_id(PROFILE, CONFIG, TASK, **POLICY) == group_id(PROFILE, CONFIG, replace(TASK), **POLICY)
    assert group_id(PROFILE, CONFIG, TASK, **POLICY) != group_id(PROFILE, CONFIG, replace(TASK, seed=6), **POLICY)


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


def test_equal_levels_of_different_seeds_are_planned_once() -> None:
    config = FrozenLakeConfig(size=2, frozen_probability=1.0)  # four starts with three goals each
    assert len({task.initial_state for task in plan_tasks(FrozenLakeEnv, config, 0, 12)}) == 12


def test_groups_are_full_blocks_in_order_of_sample_index() -> None:
    def made(group: str, sample: int, status: Status = Status.COMPLETE) -> Episode:
        row = dict.fromkeys(EPISODES.names) | {"episode_id": f"{group}{sample}", "group_id": group}
        return from_row(Episode, row | {"sample_idx": sample, "status": status})

    episodes = [made("a", sample) for sample in reversed(range(20))]
    episodes += [made("b", sample, Status.ERROR if sample == 2 else Status.COMPLETE) for sample in range(9)]
    episodes += [made("c", sample, Status.TRUNCATED if sample == 2 else Status.COMPLETE) for sample in range(8)]
    groups = form_groups(episodes)
    assert [[episode.episode_id for episode in block] for block in groups.blocks] == [
        [f"a{sample}" for sample in range(8)],
        [f"a{sample}" for sample in range(8, 16)],
        [f"b{sample}" for sample in (0, 1, 3, 4, 5, 6, 7, 8)],
    ]
    assert groups.dropped == 4 + 7
    assert groups.incomplete == 2
    assert len(form_groups(episodes, size=4).blocks) == 5 + 2 + 1
