"""Returns of episodes, and the advantages of GRPO computed from them.

The rollouts of one level are a group; advantages compare its complete episodes with each other. The advantage of an
episode goes to every token of all its turns. With a credit rule (an extension), a turn has an advantage of its own,
``A_t = A + w * (c_t - mean) / (std + eps)``: ``c_t`` is the score of the turn by the rule (:func:`pivot.credit`), mean
and population deviation are those over all turns of the group, and ``w`` is ``credit_weight``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import TrainingError
from ...datasets.store.config import solver_type
from ...models.extras import need
from ...rollouts.base import Episode, Status, TaskRollouts
from ...solvers.base import ExactSolver, Unsolved
from ...solvers.credit import credit
from ..config import EXTRA
from ..tensors import Tensor
from .config import RlConfig
from .hindsight.contexts import arm_of

torch: Any = need("torch", EXTRA)

RETURN_DIGITS = 8
"""Decimals in which returns have to agree to count as equal."""
ADVANTAGE_EPS = 1e-6
"""Added to the deviation, so that tiny deviations are not scaled up."""


def group_advantages(returns: Tensor, eps: float = ADVANTAGE_EPS) -> Tensor:
    """Return ``(R - mean) / (std + eps)`` with the population deviation; exactly 0 where all returns agree.

    Args:
        returns: returns of the complete episodes of one level, or scores of all their turns, shape (values,).
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


def check_exact(config: RlConfig) -> None:
    """Check that the environment has the exact needs and plans that credit and corrections are computed from.

    Raises:
        TrainingError: its solver knows no exact distances.
    """
    users = [f"credit {config.credit!r}"] if config.credit is not None else []
    users += [f"arm {config.arm}"] if arm_of(config.arm).corrects is not None else []
    if users and not issubclass(solver_type(config.env), ExactSolver):
        raise TrainingError(
            f"{users[0]}: found environment {config.env}, whose solver proves no shortest plans, expected one with an "
            "exact solver, such as frozenlake or sokoban; remove --credit, or choose another --arm"
        )


def credit_advantages(groups: Sequence[Sequence[Episode]], rule: str) -> tuple[dict[str, list[float]], float, int]:
    """Return the credit part of the advantage of every turn, before its weight.

    Args:
        groups: complete episodes, level by level.
        rule: name in :data:`pivot.solvers.credit.RULES`.

    Returns:
        Advantages by episode, one per turn; the mean score of all turns; the number of episodes for which the solver
        gave up, which have no entry.
    """
    parts: dict[str, list[float]] = {}
    scores: list[float] = []
    unsolved = 0
    answers = iter(credit(groups[0][0].env, [each.log() for group in groups for each in group], rule=rule))
    for group in groups:
        solved: list[tuple[Episode, list[float]]] = []
        for episode, turns in zip(group, answers, strict=False):
            if isinstance(turns, Unsolved):
                unsolved += 1
            else:
                solved.append((episode, [turn.score for turn in turns]))
        flat = [score for _, own in solved for score in own]
        if not flat:
            continue
        scaled = iter(group_advantages(torch.tensor(flat, dtype=torch.float64)).tolist())
        parts |= {episode.episode_id: [next(scaled) for _ in own] for episode, own in solved}
        scores += flat
    return parts, sum(scores) / max(1, len(scores)), unsolved


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
    turns: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """Weighted credit of every turn, by episode; empty without a credit rule."""
    mean_credit: float | None = None
    """Mean score of a turn by the credit rule."""
    uncredited: int = 0
    """Complete episodes without credit, because their level is beyond the limits of the solver."""

    def of_turn(self, episode_id: str, t: int) -> float:
        """Return the advantage of turn ``t``, 0-based, of a complete episode."""
        parts = self.turns.get(episode_id)
        return self.advantages[episode_id] + (parts[t] if parts else 0.0)

    def figures(self) -> dict[str, float | None]:
        """Return the figures of the credit; empty without a credit rule."""
        return {} if self.mean_credit is None else {"credit": self.mean_credit, "uncredited": self.uncredited}


def group(rollouts: Sequence[TaskRollouts], config: RlConfig) -> Groups:
    """Compute the advantages of an update, level by level.

    Raises:
        TrainingError: no episode could be finished.
    """
    advantages: dict[str, float] = {}
    groups: list[list[Episode]] = []
    silent = lost = 0
    for task in rollouts:
        complete = [episode for episode in task.episodes if episode.status is Status.COMPLETE]
        if not complete:
            continue
        returns = [training_return(each, config.gamma, config.invalid_penalty) for each in complete]
        scaled = group_advantages(torch.tensor(returns, dtype=torch.float64)).tolist()
        advantages |= {episode.episode_id: value for episode, value in zip(complete, scaled, strict=True)}
        groups.append(complete)
        silent += len({round(value, RETURN_DIGITS) for value in returns}) == 1
        lost += all(episode.failed for episode in complete)
    if not groups:
        reasons = (each.error for task in rollouts for each in task.episodes if each.error)
        raise TrainingError(
            f"no episode of this update could be finished ({next(reasons, 'there was none')}), expected at least one; "
            "repair the environment, then run again with --resume"
        )
    if config.credit is None:
        return Groups(advantages, len(groups), silent, lost)
    parts, mean, uncredited = credit_advantages(groups, config.credit)
    turns = {name: [config.credit_weight * value for value in values] for name, values in parts.items()}
    return Groups(advantages, len(groups), silent, lost, turns, mean, uncredited)
