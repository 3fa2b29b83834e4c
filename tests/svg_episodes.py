"""Failed SVG episodes for tests: rollouts of the scripted policy, read from their rows as labelling does."""

from functools import lru_cache

from pivot.datasets.store.schema import EPISODES, STEPS
from pivot.datasets.store.tables import failed_episodes, rollout_tables
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.labeling.base import FailedEpisode
from pivot.rollouts.base import TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy


@lru_cache(maxsize=2)
def rollouts(count: int) -> list[TaskRollouts]:
    """Return eight rollouts of each of ``count`` tasks; they are shared, so do not change them."""
    config = SvgConfig()
    return roll_out_tasks(SvgEnv, config, plan_tasks(SvgEnv, config, 0, count), ScriptedPolicy())


def failures(count: int = 9) -> list[FailedEpisode]:
    """The failed ones among eight rollouts of each of ``count`` tasks."""
    tables = rollout_tables(rollouts(count))
    return failed_episodes(tables[EPISODES], tables[STEPS])
