"""The ids of rollouts: pure functions of an episode's inputs, never of its results.

An episode's random stream derives from its id, so two runs with equal inputs give equal episodes for any number of
workers, and a store can name its pending episodes.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ..core.identity import ID_VERSION, versioned_id
from ..environments.base import EnvConfig, EnvProfile, Task


def _group_inputs(
    profile: EnvProfile, config: EnvConfig, task: Task, policy_name: str, policy_config: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "env": profile.name,
        "env_version": profile.version,
        "env_config": config.decisive(),
        "task_id": task.task_id,
        "goal_idx": task.goal_idx,
        "eval_set": task.eval_set,
        "seed": task.seed,
        "policy": policy_name,
        "policy_config": dict(policy_config),
    }


def group_id(
    profile: EnvProfile, config: EnvConfig, task: Task, *, policy_name: str, policy_config: Mapping[str, Any]
) -> str:
    """Return the id shared by all samples of one prompt key under one policy and its sampling settings."""
    return versioned_id("group", _group_inputs(profile, config, task, policy_name, policy_config))


def episode_id(
    profile: EnvProfile,
    config: EnvConfig,
    task: Task,
    sample_idx: int,
    *,
    policy_name: str,
    policy_config: Mapping[str, Any],
) -> str:
    """Return the id of sample ``sample_idx`` (0-based) of a task."""
    inputs = _group_inputs(profile, config, task, policy_name, policy_config)
    return versioned_id("episode", inputs | {"sample_idx": sample_idx})


def request_id(episode: str, t: int, role: str) -> str:
    """Return the id of one request to a model: the key of the ``calls`` table and of reply caches."""
    # Computed for every step, and no part holds a slash: joined text is as unique as JSON and much cheaper.
    parts = f"{episode}/{t}/{role}"
    return f"request-{ID_VERSION}-{sha256(parts.encode()).hexdigest()[:32]}"
