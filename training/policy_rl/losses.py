"""The losses, as pure functions of log-probabilities (spec section 8).

``l`` is the Student's log-probability of a token that was sampled; everything else is data without a gradient. Token
counts come in as arguments: they are those of the whole batch, over all micro-batches and processes, so that gradients
of the parts add up to the gradient of the whole.
"""

from dataclasses import dataclass
from typing import Any

Tensor = Any
"""A tensor of PyTorch, which is not imported to describe what happens to one."""

OPD_OBJECTIVES = {
    "printed": "the paper's",
    "centred": "an extension: the gate less one half",
    "gap": "an extension: the gap as an advantage",
}
"""Distillation losses by name; see :func:`gated_opd`."""
OpdObjective = str
RETURN_DIGITS = 8
"""Returns that agree in so many decimals are equal (spec section 6)."""
ADVANTAGE_EPS = 1e-6


def record_loss(logprobs: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over records of the mean negative log-likelihood over the record's own target tokens.

    A long target weighs as much as a short one; a batch's token count appears nowhere. Micro-batches of equal numbers
    of records can therefore be averaged, over accumulation steps and over processes.

    Args:
        logprobs: of the tokens, shape (records, tokens); anything where ``mask`` is False.
        mask: which tokens are supervised, at least one a record, shape (records, tokens).
    """
    counts = mask.sum(dim=1)
    return -((logprobs * mask).sum(dim=1) / counts).mean()


def group_advantages(returns: Tensor, eps: float = ADVANTAGE_EPS) -> Tensor:
    """Return ``(R - mean) / (std + eps)`` with the population deviation; exactly 0 where all returns agree.

    Args:
        returns: of the complete episodes of one prompt, shape (episodes,).
        eps: keeps tiny deviations from being blown up.
    """
    rounded = returns.round(decimals=RETURN_DIGITS)
    if bool((rounded == rounded[0]).all()):
        return returns * 0.0
    return (returns - returns.mean()) / (returns.std(correction=0) + eps)


def clipped_surrogate(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: float = 0.2) -> Tensor:
    """Return ``-min(rho A, clip(rho, 1 - clip, 1 + clip) A)`` a token, ``rho = exp(l - l_old)``; shape (tokens,).

    Args:
        logprobs: ``l``, shape (tokens,).
        old: log-probabilities before the update, shape (tokens,).
        advantages: that of its episode for each token, shape (tokens,).
        clip: how far the ratio may pull.
    """
    ratio = (logprobs - old).exp()
    return -(ratio * advantages).minimum(ratio.clamp(1 - clip, 1 + clip) * advantages)


def is_clipped(logprobs: Tensor, old: Tensor, advantages: Tensor, clip: float = 0.2) -> Tensor:
    """Return where clipping takes the gradient away, shape (tokens,); arguments as in :func:`clipped_surrogate`."""
    ratio = (logprobs - old).exp()
    return ((ratio > 1 + clip) & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return ``exp(l_ref - l) - (l_ref - l) - 1`` a token, an estimate of KL(policy || reference); shape (tokens,)."""
    difference = reference - logprobs
    return difference.exp() - difference - 1


def gate(logprobs: Tensor, teacher: Tensor, beta: float = 5.0) -> Tensor:
    """Return ``g = sigmoid(beta * sg[l_tea - l])`` a token: how much more the Teacher likes it; shape (tokens,)."""
    return (beta * (teacher - logprobs).detach()).sigmoid()


def gated_opd(logprobs: Tensor, teacher: Tensor, beta: float = 5.0, objective: OpdObjective = "printed") -> Tensor:
    """Return the distillation loss a token, shape (tokens,).

    ``printed`` is the paper's ``g * (sg[l_tea] - l)``. Its gradient is ``-g`` a log-probability, never positive: it
    raises every token that it counts, those that the Teacher likes more than the others. ``centred`` has ``g - 1/2`` in
    the place of ``g``, and ``gap`` takes ``sg[l_tea - l]`` for an advantage; both lower what the Teacher likes less.

    Args:
        logprobs: ``l``, shape (tokens,).
        teacher: log-probabilities of the same tokens under the Teacher's prompt, shape (tokens,).
        beta: slope of the gate.
        objective: which of the three.
    """
    gap = teacher.detach() - logprobs
    if objective == "gap":
        return -gap.detach() * logprobs
    return (gate(logprobs, teacher, beta) - (0.5 if objective == "centred" else 0.0)) * gap


@dataclass(frozen=True, slots=True)
class Weights:
    """What the terms weigh and how they are shaped; defaults are the paper's."""

    clip: float = 0.2
    kl: float = 0.01
    opd: float = 0.01
    """``lambda_opd``."""
    beta: float = 5.0
    """``beta_opd``, slope of the gate."""
    opd_objective: OpdObjective = "printed"


@dataclass(frozen=True, slots=True)
class Loss:
    """The terms of the loss; each is a sum over the tokens given, over the count of the whole batch. Scalars."""

    grpo: Tensor
    kl: Tensor
    opd: Tensor
    total: Tensor


def stage_two_loss(
    logprobs: Tensor,
    *,
    old: Tensor,
    reference: Tensor,
    teacher: Tensor,
    advantages: Tensor,
    valid: Tensor,
    active: Tensor,
    valid_count: int,
    active_count: int,
    weights: Weights,
) -> Loss:
    """Return ``GRPO + kl * k3 + lambda_opd * OPD`` of some tokens of a batch.

    GRPO and KL are means over the valid tokens, OPD over the active ones.

    Args:
        logprobs: the Student's, with their gradient, shape (tokens,).
        old: the Student's before the update, shape (tokens,).
        reference: of the weights that Stage II started from, shape (tokens,).
        teacher: the Teacher's; anything where ``active`` is False; shape (tokens,).
        advantages: of each token's episode, shape (tokens,).
        valid: which tokens count, bool, shape (tokens,).
        active: which of them are distilled, bool, shape (tokens,).
        valid_count: valid tokens of the whole batch.
        active_count: active tokens of the whole batch.
        weights: of the terms.
    """
    surrogate = clipped_surrogate(logprobs, old, advantages, weights.clip)
    distilled = gated_opd(logprobs, teacher.where(active, logprobs.detach()), weights.beta, weights.opd_objective)
    grpo = (surrogate * valid).sum() / max(1, valid_count)
    kl = (k3(logprobs, reference) * valid).sum() / max(1, valid_count)
    opd = (distilled * active).sum() / max(1, active_count)
    return Loss(grpo, kl, opd, grpo + weights.kl * kl + weights.opd * opd)
