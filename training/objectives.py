"""The losses, as pure functions of log-probabilities (spec section 8)."""

from typing import Any

Tensor = Any
"""A tensor of PyTorch, which is not imported to describe what happens to one."""


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
