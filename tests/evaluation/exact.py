"""Compare the exact success of the study's reader with episodes that the product's loop and engine play."""

from collections.abc import Sequence
from typing import Any

from pivot.benchmarks.learning import vlm
from pivot.benchmarks.learning.worlds import exact_success, explore
from pivot.environments.base import Task
from pivot.models.transformers.model import Engine
from pivot.rollouts.policies import ModelPolicy
from pivot.training.encode import Encoder
from pivot.training.policy_rl.engines.base import GenerationOptions
from pivot.training.policy_rl.engines.in_process import InProcessBackend
from pivot.training.policy_rl.levels import Levels, roll_out

AT_ONCE = 400
"""Episodes that are played at once."""


def check_exact_success(levels: Levels, tasks: Sequence[Task], player: Any, encoder: Encoder, episodes: int) -> float:
    """Check that the exact success of a model is that of ``episodes`` sampled ones, and return their deviation.

    Replies out of format count as lost turns, so sampled success may be higher, by what such replies could win at most.
    """
    world = explore(levels.env, levels.config, tasks)
    policy = vlm.ExactReader(levels, world, encoder).policy(player)
    values = exact_success(world, policy)
    assert 1 - policy.sum(axis=1).min() < 0.5, "the start keeps to the format"
    share = _play(levels, tasks, player, encoder, episodes)
    deviation = ((values * (1 - values)).sum() / (episodes // len(tasks))) ** 0.5 / len(values)
    outside = world.horizon * (1 - policy.sum(axis=1)).mean()
    assert -4 * deviation < share - values.mean() < 4 * deviation + outside
    return float(deviation)


def _play(levels: Levels, tasks: Sequence[Task], player: Any, encoder: Encoder, episodes: int) -> float:
    """Return the share of won episodes."""
    engine = Engine(player, encoder.processor, encoder.placeholders)
    wins = 0
    for part in range(episodes // AT_ONCE):
        options = GenerationOptions(model="start", run=f"sampled {part}", max_tokens=8)
        policy = ModelPolicy(InProcessBackend(options, engine, batch=AT_ONCE))
        rollouts = roll_out(levels, tasks, policy, AT_ONCE // len(tasks), run_id=f"sampled {part}")
        wins += sum(bool(episode.success) for task in rollouts for episode in task.episodes)
    player.generation_config = engine.own_defaults
    return wins / (episodes // AT_ONCE * AT_ONCE)
