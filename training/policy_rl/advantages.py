"""Returns of episodes, and the advantages of GRPO computed from them (spec section 8).

The rollouts of one level are a group; advantages compare its complete episodes with each other. The advantage of an
episode goes to every token of all its turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TrainingError
from ...models.extras import need
from ...rollouts.base import Episode, Status, TaskRollouts
from ..config import EXTRA
from ..tensors import Tensor
from .config import RlConfig

torch: Any = need("torch", EXTRA)

RETURN_DIGITS = 8
"""Decimals in which returns have to agree to count as equal (spec section 6)."""
ADVANTAGE_EPS = 1e-6
"""Added to the deviation, so that tiny deviations are not scaled up."""


def group_advantages(returns: Tensor, eps: float = ADVANTAGE_EPS) -> Tensor:
    """Return ``(R - mean) / (std + eps)`` with the population deviation; exactly 0 where all returns agree.

    Args:
        returns: returns of the complete episodes of one level, shape (episodes,).
        eps: added to the deviation.
    """
    rounded = returns.round(decimals=RETURN_DIGITS)
    if bool((rounded == rounded[0]).all()):
        return returns * 0.0
    return (returns - returns.mean()) / (returns.std(correction=0) + eps)


def training_return(episode: Episode, gamma: float, penalty: float) -> float:
    """Return the discounted sum of rewards, less ``penalty`` for every reply that broke the format."""
    total = 0.0
    for t, (reward, step) in enumerate(zip(episode.rewards, episode.steps, strict=True)):
        total += gamma**t * (reward - (0.0 if step.action_valid else penalty))
    return total


def is_silent(task: TaskRollouts, config: RlConfig) -> bool:
    """Whether the complete episodes of a level have equal returns, so that GRPO learns nothing from them."""
    complete = [episode for episode in task.episodes if episode.status is Status.COMPLETE]
    returns = {round(training_return(each, config.gamma, config.invalid_penalty), RETURN_DIGITS) for each in complete}
    return len(returns) <= 1


@dataclass(frozen=True, slots=True)
class Groups:
    """Advantages of the episodes of an update, and counts of their groups."""

    advantages: Mapping[str, float]
    """Advantage of each complete episode, by its id."""

    count: int
    """Groups with a complete episode."""
    zero_variance: int
    """Groups whose returns are equal: GRPO learns nothing from them."""
    all_failed: int
    """Groups without a success."""


def group(rollouts: Sequence[TaskRollouts], config: RlConfig) -> Groups:
    """Compute the advantages of an update, level by level.

    Raises:
        TrainingError: no episode could be finished.
    """
    advantages: dict[str, float] = {}
    count = silent = lost = 0
    for task in rollouts:
        complete = [episode for episode in task.episodes if episode.status is Status.COMPLETE]
        if not complete:
            continue
        returns = [training_return(each, config.gamma, config.invalid_penalty) for each in complete]
        scaled = group_advantages(torch.tensor(returns, dtype=torch.float64)).tolist()
        advantages |= {episode.episode_id: value for episode, value in zip(complete, scaled, strict=True)}
        count += 1
        silent += len({round(value, RETURN_DIGITS) for value in returns}) == 1
        lost += all(episode.failed for episode in complete)
    if not count:
        reasons = (each.error for task in rollouts for each in task.episodes if each.error)
        raise TrainingError(
            f"no episode of this update could be finished ({next(reasons, 'there was none')}), expected at least one; "
            "repair the environment, then run again with --resume"
        )
    return Groups(advantages, count, silent, lost)
