"""Losses of Stage II, as pure functions of log-probabilities.

``l`` is the Student's log-probability of a sampled token; everything else is data without a gradient. Token counts come
in as arguments: they are those of the whole batch, over all micro-batches and processes, so that the gradients of the
micro-batches add up to the gradient of the batch.

The distillation losses are the functions behind the plugins of ``extensions/objectives.py``, where a new one goes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..tensors import CandidateIds, CandidateValues, Scalar, Tensor, TokenMask, TokenValues


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Reply tokens of one turn or of several, turn after turn, with all inputs of the loss except ``l``."""

    old: TokenValues
    """Log-probabilities before the update."""
    reference: TokenValues
    """Log-probabilities under the weights that Stage II started from."""
    teacher: TokenValues
    """Log-probabilities under the Teacher's prompt; zeros for a turn that is not distilled."""
    advantages: TokenValues
    """Advantage of the episode of each token, or of its turn where there is a credit rule (``advantages.py``)."""
    valid: TokenMask
    """Tokens with a weight: all but placeholders of pictures."""
    active: TokenMask
    """Valid tokens that are distilled."""
    candidates: CandidateIds | None = None
    """The Teacher's most likely tokens at each reply token; only with the objective ``distribution``."""
    teacher_candidates: CandidateValues | None = None
    """Log-probabilities of the candidates under the Teacher's prompt."""
    student_candidates: CandidateValues | None = None
    """Log-probabilities of the candidates under the Student's prompt, with gradient."""
    quantities: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Further quantities of the Teacher per token, by name, shape (tokens, ...), as the objective's ``measure`` names
    them; zeros for a turn that is not distilled."""


MAX_LOG_RATIO, MAX_K3 = 20.0, 10.0
"""Bounds of log-ratios in nats and of k3, as in verl: one token with an extreme ratio cannot dominate a batch."""


def ratio_of(logprobs: TokenValues, old: TokenValues) -> TokenValues:
    """Return ``rho = exp(l - l_old)`` per token, with a bounded log-ratio."""
    return (logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def clipped_surrogate(
    logprobs: TokenValues, old: TokenValues, advantages: TokenValues, clip: float, high: float | None = None
) -> TokenValues:
    """Return ``-min(rho A, clip(rho, 1 - clip, 1 + high) A)`` per token, with ``rho = exp(l - l_old)``.

    Args:
        logprobs: ``l``, shape (tokens,).
        old: log-probabilities before the update, shape (tokens,).
        advantages: advantage of the episode of each token, shape (tokens,).
        clip: clipping range of ``rho`` downwards.
        high: clipping range upwards; None for ``clip``.
    """
    ratio = ratio_of(logprobs, old)
    return -(ratio * advantages).minimum(ratio.clamp(1 - clip, 1 + (clip if high is None else high)) * advantages)


def is_clipped(
    logprobs: TokenValues, old: TokenValues, advantages: TokenValues, clip: float, high: float | None = None
) -> TokenMask:
    """Return where clipping removes the gradient, shape (tokens,); arguments as in :func:`clipped_surrogate`."""
    ratio = ratio_of(logprobs, old)
    above = ratio > 1 + (clip if high is None else high)
    return (above & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))


def k3(logprobs: TokenValues, reference: TokenValues) -> TokenValues:
    """Return ``exp(l_ref - l) - (l_ref - l) - 1`` per token, bounded: an estimate of KL(policy || reference)."""
    difference = (reference - logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return (difference.exp() - difference - 1).clamp(max=MAX_K3)


# Distillation


def gate(logprobs: TokenValues, teacher: TokenValues, beta: float) -> TokenValues:
    """Return ``g = sigmoid(beta * sg[l_tea - l])`` per token: how much more likely the Teacher finds it."""
    return (beta * (teacher - logprobs).detach()).sigmoid()


def printed_opd(logprobs: TokenValues, tokens: TokenBatch, beta: float) -> TokenValues:
    """Return the paper's loss, ``g * (sg[l_tea] - l)``, per token.

    Its gradient is ``-g`` with respect to ``l``, never positive: it makes every counted token more likely, most of all
    tokens that the Teacher finds more likely than the Student does.
    """
    return gate(logprobs, tokens.teacher, beta) * (tokens.teacher.detach() - logprobs)


def centred_opd(logprobs: TokenValues, tokens: TokenBatch, beta: float) -> TokenValues:
    """Return ``(g - 1/2) * (sg[l_tea] - l)`` per token: it also lowers tokens that the Teacher finds unlikely."""
    return (gate(logprobs, tokens.teacher, beta) - 0.5) * (tokens.teacher.detach() - logprobs)


def gap_opd(logprobs: TokenValues, tokens: TokenBatch, beta: float) -> TokenValues:
    """Return ``-sg[l_tea - l] * l`` per token: the gap as an advantage; ``beta`` is not used."""
    del beta
    return -(tokens.teacher.detach() - logprobs).detach() * logprobs


LEAST_REST = 1e-6
"""Least probability of all tokens outside the candidates: less is rounding of float32."""


def distribution_opd(logprobs: TokenValues, tokens: TokenBatch, beta: float) -> TokenValues:
    """Return ``KL(Teacher || Student)`` per token over the Teacher's k most likely tokens and one class of all others.

    ``sum_v p_v * (log p_v - l_v) + p_rest * (log p_rest - log(1 - sum_v exp l_v))``, with ``p`` the Teacher's
    probabilities of the candidates ``v``, ``l`` the Student's log-probabilities of them, and
    ``p_rest = 1 - sum_v p_v``. It is the whole divergence if k is the size of the vocabulary. The sampled token has no
    role in it; without a gate ``beta`` is not used.
    """
    del beta
    if tokens.teacher_candidates is None or tokens.student_candidates is None:
        return logprobs * 0.0
    teacher, student = (each[tokens.active] for each in (tokens.teacher_candidates.detach(), tokens.student_candidates))
    chance = teacher.exp()
    rest, own_rest = ((1 - each.exp().sum(-1)).clamp(min=LEAST_REST) for each in (teacher, student))
    divergence = (chance * (teacher - student)).sum(-1) + rest * (rest.log() - own_rest.log())
    return logprobs.new_zeros(len(logprobs)).masked_scatter(tokens.active, divergence)


# Corrections: extensions that learn from the solver's plan


def witness_loss(logprobs: TokenValues, count: int) -> Scalar:
    """Return ``-sum(l) / count`` over the tokens of certified actions: supervised learning on corrections.

    Args:
        logprobs: the Student's log-probabilities of the actions' tokens, with their gradient, shape (tokens,).
        count: tokens of certified actions of the whole batch.
    """
    return -logprobs.sum() / max(1, count)


def preference_loss(chosen: TokenValues, rejected: TokenValues, beta: float, count: int) -> Scalar:
    """Return ``-sum(log sigmoid(beta * (chosen - rejected))) / count`` over pairs of replies: DPO (Rafailov, 2023).

    Args:
        chosen: ``sum(l - l_ref)`` over the tokens of each certified reply, shape (pairs,).
        rejected: the same of the sampled reply of the failure, shape (pairs,).
        beta: strength of the pull towards the reference.
        count: pairs of the whole batch.
    """
    margin = beta * (chosen - rejected)
    return (-margin).logaddexp(margin.new_zeros(())).sum() / max(1, count)


# The loss of an update


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights and shapes of the terms; :class:`.RlConfig` declares them with their defaults."""

    clip: float
    kl: float
    opd: float
    """``lambda_opd``."""
    clip_high: float | None = None
    """Clipping range upwards; None for ``clip``."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Terms of the loss; each is a sum over the tokens of a micro-batch, divided by the count of the whole batch."""

    grpo: Scalar
    kl: Scalar
    opd: Scalar
    total: Scalar


Distil = Callable[[TokenValues, TokenBatch], TokenValues]
"""Distillation loss per token, shape (tokens,), of ``l`` and the batch."""


def stage_two_loss(
    logprobs: TokenValues, tokens: TokenBatch, *, valid_count: int, active_count: int, weights: Weights, distil: Distil
) -> Loss:
    """Return ``GRPO + kl * k3 + lambda_opd * OPD`` of some tokens of a batch.

    GRPO and KL are means over the valid tokens of the batch, OPD is a mean over the active ones.

    Args:
        logprobs: the Student's log-probabilities, with their gradient, shape (tokens,).
        tokens: the data of the same tokens.
        valid_count: valid tokens of the whole batch.
        active_count: active tokens of the whole batch.
        weights: weights of the terms.
        distil: the distillation loss per token, with its slope.
    """
    valid, active = tokens.valid, tokens.active
    surrogate = clipped_surrogate(logprobs, tokens.old, tokens.advantages, weights.clip, weights.clip_high)
    scored = replace(tokens, teacher=tokens.teacher.where(active, logprobs.detach()))
    grpo = (surrogate * valid).sum() / max(1, valid_count)
    kl = (k3(logprobs, tokens.reference) * valid).sum() / max(1, valid_count)
    opd = (distil(logprobs, scored) * active).sum() / max(1, active_count)
    return Loss(grpo, kl, opd, grpo + weights.kl * kl + weights.opd * opd)
