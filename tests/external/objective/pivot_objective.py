"""An example of every extension of Stage II, in two files: this module and ``pyproject.toml``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from pivot.plugin import (
    AdvantageEstimator,
    Arm,
    Hindsight,
    Objective,
    RlConfig,
    Settings,
    TaskRollouts,
    TokenBatch,
    complete_episodes,
)
from pydantic import Field

# A distillation loss with one more quantity of the Teacher


class ConfidentSettings(Settings):
    """Settings of the loss."""

    sharpness: float = Field(default=1.0, ge=0)
    """Per nat of the Teacher's entropy; 0 weighs all tokens alike."""


class Confident(Objective):
    """The gap as an advantage, weighed by ``exp(-sharpness * entropy)`` of the Teacher's distribution."""

    config_type = ConfidentSettings

    def measure(self, logprobs: Any, config: RlConfig) -> Mapping[str, Any]:
        """Return the Teacher's entropy at each token."""
        entropy = -(logprobs.exp() * logprobs.masked_fill(logprobs.isinf(), 0.0)).sum(-1)
        return {"entropy": entropy}

    def loss(self, logprobs: Any, tokens: TokenBatch, config: RlConfig) -> Any:
        """Return ``-w * sg[l_tea - l] * l`` per token."""
        weights = (-self.settings.sharpness * tokens.quantities["entropy"]).exp()
        return -weights * (tokens.teacher - logprobs).detach() * logprobs


# GiGPO's advantage of single steps (Feng et al., 2025): episodes of a level that pass the same state are compared there


class GigpoSettings(Settings):
    """Settings of the estimator."""

    omega: float = Field(default=1.0, ge=0)
    """Weight of the advantage of steps; 0 is GRPO."""


class Gigpo(AdvantageEstimator):
    """The advantage of the episode plus ``omega`` times that of the step among all visits of its state."""

    config_type = GigpoSettings

    def advantages(
        self, rollouts: Sequence[TaskRollouts], grpo: Mapping[str, float], config: RlConfig
    ) -> Mapping[str, Sequence[float]]:
        """Return one advantage per turn."""
        estimates = {each.episode_id: [grpo[each.episode_id]] * len(each.steps) for each in complete_episodes(rollouts)}
        for task in rollouts:
            visits: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
            for episode in complete_episodes([task]):
                ahead = 0.0
                for step in reversed(episode.steps):
                    ahead = step.reward + config.gamma * ahead
                    visits[step.state or f"frame {step.frame_id}"].append((episode.episode_id, step.t, ahead))
            for same in visits.values():
                values = [value for *_, value in same]
                deviation = pstdev(values)
                for name, t, value in same:
                    if deviation > 0:
                        estimates[name][t] += self.settings.omega * (value - fmean(values)) / deviation
        return estimates


# An arm whose Teacher learns of the failure alone, in words of its own


def verdict_text(env: str, hindsight: Hindsight) -> str:
    """Return the text of the context."""
    return f"This attempt at {env} ended in failure: {hindsight.mode}."


VERDICT = Arm("verdict", "the Teacher learns the failure mode in other words", ("mode",), text=verdict_text)
