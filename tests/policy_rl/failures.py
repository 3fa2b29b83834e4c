"""Failed episodes of every environment as rollouts leave them, from the embedded stand-in policy."""

from collections.abc import Iterator
from functools import cache

from pivot.core import plugins
from pivot.datasets.store.config import env_config
from pivot.environments.base import PivotEnv
from pivot.rollouts.base import Episode, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks

ENVS = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")


@cache
def rollouts_of(env: str, tasks: int = 1, rollouts: int = 6) -> list[TaskRollouts]:
    """Play a few levels."""
    env_type: type[PivotEnv] = plugins.load("environments", env)
    config = env_config(env, {})
    policy = plugins.load("policies", "scripted")()
    return roll_out_tasks(env_type, config, plan_tasks(env_type, config, 0, tasks), policy, rollouts)


def failures_of(env: str) -> Iterator[tuple[TaskRollouts, Episode]]:
    """The failed episodes of an environment, with the rollouts that hold their frames."""
    for task in rollouts_of(env):
        for episode in task.episodes:
            if episode.failed:
                yield task, episode


def frame_ids(episode: Episode) -> list[str]:
    """The frame before each action, then the terminal one."""
    return [step.frame_id for step in episode.steps] + [episode.steps[-1].next_frame_id]
