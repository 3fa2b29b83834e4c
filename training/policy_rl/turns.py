"""From episodes to what is trained on: every turn is a sample of its own (spec section 8).

The advantage of an episode goes to every token of every turn of it. Advantages are taken within the rollouts of one
level; an episode that ended in an error is in no group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import TrainingError
from ...models.extras import need
from ...rollouts.base import Episode, Status, TaskRollouts
from ..encode import EXTRA
from .config import RlConfig
from .losses import RETURN_DIGITS, group_advantages
from .scoring import Row

torch: Any = need("torch", EXTRA)

THOUGHT = "</think>"


@dataclass(frozen=True, slots=True)
class TurnSample:
    """One turn of an episode."""

    episode_id: str
    t: int
    student: Row
    teacher: Row | None
    """The same tokens under the Teacher's prompt; None where nothing is distilled."""
    advantage: float
    thinking: int
    """How many of the tokens belong to the thoughts; the rest is the action."""
    at_pivot: bool | None = None
    """Whether the solver's pivot step is this one; None where it has no answer, or the episode succeeded."""


def training_return(episode: Episode, gamma: float = 1.0, penalty: float = 0.1) -> float:
    """Return what advantages are made of: discounted rewards, less a penalty for every reply that broke the format."""
    total = 0.0
    for t, (reward, step) in enumerate(zip(episode.rewards, episode.steps, strict=True)):
        total += gamma**t * (reward - (0.0 if step.action_valid else penalty))
    return total


@dataclass(frozen=True, slots=True)
class Groups:
    """The rollouts of some levels, compared with each other."""

    advantages: Mapping[str, float]
    """Of each complete episode."""
    count: int
    zero_variance: int
    """Groups whose returns agree: GRPO learns nothing from them."""
    all_failed: int


def group(rollouts: Sequence[TaskRollouts], config: RlConfig) -> Groups:
    """Compare the complete episodes of every level with each other.

    Raises:
        TrainingError: no episode at all could be finished.
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
            "repair the environment, then go on with --resume"
        )
    return Groups(advantages, count, silent, lost)


def thinking_tokens(tokens: Sequence[int], decode: Any) -> int:
    """Return how many tokens it takes until the thoughts are closed; 0 where they never are.

    Args:
        tokens: of a reply.
        decode: from tokens to text.
    """
    if THOUGHT not in decode(tokens):
        return 0
    low, high = 1, len(tokens)
    while low < high:
        middle = (low + high) // 2
        if THOUGHT in decode(tokens[:middle]):
            high = middle
        else:
            low = middle + 1
    return low


def roc_area(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return the area under the ROC curve: how often a positive has the higher score; None without both kinds."""
    yes = [score for score, is_positive in zip(scores, positive, strict=True) if is_positive]
    no = [score for score, is_positive in zip(scores, positive, strict=True) if not is_positive]
    if not yes or not no:
        return None
    first, second = torch.tensor(yes, dtype=torch.float64), torch.tensor(no, dtype=torch.float64)
    difference = first[:, None] - second[None, :]
    return ((difference > 0).double() + 0.5 * (difference == 0)).mean().item()
