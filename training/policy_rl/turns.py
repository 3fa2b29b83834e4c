"""Turns as training samples: every turn of an episode is a sample of its own (spec section 8)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...models.extras import need
from ..encode import EXTRA
from .scoring import Row

torch: Any = need("torch", EXTRA)

THOUGHT = "</think>"
"""End of the thoughts in a reply."""


@dataclass(frozen=True, slots=True)
class TurnSample:
    """One turn of an episode."""

    episode_id: str
    t: int
    """Step, 0-based."""
    student: Row
    """Reply tokens under the Student's prompt."""
    teacher: Row | None
    """Same tokens under the Teacher's prompt; None where the turn is not distilled."""
    advantage: float
    """Advantage of the episode."""
    thinking: int
    """Number of tokens that belong to the thoughts; the others are the action."""
    at_pivot: bool | None = None
    """Whether this is the solver's pivot step; None where it has no answer, or the episode succeeded."""


def thinking_tokens(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int:
    """Return the number of tokens up to the end of the thoughts; 0 where they are never closed.

    Args:
        tokens: tokens of a reply.
        decode: converts tokens to text.
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
    """Return the area under the ROC curve of ``scores``; None unless there are positives and negatives."""
    yes = [score for score, is_positive in zip(scores, positive, strict=True) if is_positive]
    no = [score for score, is_positive in zip(scores, positive, strict=True) if not is_positive]
    if not yes or not no:
        return None
    first, second = torch.tensor(yes, dtype=torch.float64), torch.tensor(no, dtype=torch.float64)
    difference = first[:, None] - second[None, :]
    return ((difference > 0).double() + 0.5 * (difference == 0)).mean().item()
