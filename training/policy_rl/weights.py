"""Weights that score replies: a model, and a context manager that exchanges its weights meanwhile.

One module in memory serves as the Student, as the weights of the start (its adapters switched off), and as the moving
average of the Student (its weights exchanged).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...models.extras import need
from ..config import EXTRA
from ..tensors import Optimizer, Tensor
from .vision_cache import VisionCache

torch: Any = need("torch", EXTRA)

AVERAGE = "average"
"""Key of a weight's average in the optimiser's state, with which it is saved and restored."""


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Weights of a model."""

    model: Any
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context manager that puts the weights into the model; by default the model keeps its own."""

    def vision_cache(self) -> VisionCache:
        """Return a vision cache, valid until the weights change."""
        return VisionCache(self.model, around=self.around)


def trained(model: Any) -> list[Tensor]:
    """Return the trained parameters of a model."""
    return [each for each in model.parameters() if each.requires_grad]


class MovingAverage:
    """The exponential moving average of the trained weights: a Teacher that follows the Student slowly."""

    def __init__(self, model: Any, optimizer: Optimizer, decay: float) -> None:
        """Average the trained weights of ``model``; a restored optimiser brings the average of its run."""
        self._weights, self._optimizer, self._decay = trained(model), optimizer, decay
        self._averages = [optimizer.state.get(each, {}).get(AVERAGE, each.detach().clone()) for each in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the trained weights: ``decay * average + (1 - decay) * weight``."""
        for average, weight in zip(self._averages, self._weights, strict=True):
            average.lerp_(weight, 1 - self._decay)
            self._optimizer.state[weight][AVERAGE] = average

    @contextmanager
    def around(self) -> Iterator[None]:
        """Exchange the trained weights and the averages within a block."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for average, weight in zip(self._averages, self._weights, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
