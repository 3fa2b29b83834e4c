"""The exponential moving average of the trained weights: a Teacher that follows the Student slowly."""

from collections.abc import Iterator
from contextlib import contextmanager

from ...models.extras import need
from ..config import EXTRA
from ..tensors import Optimizer, Tensor
from .sharding import WholeModel
from .vision_cache import VisionCache

torch = need("torch", EXTRA)

AVERAGE = "average"
"""Key of a weight's average in the optimiser's state, with which it is saved, sharded and restored."""


class AveragedModel(WholeModel):
    """A model whose trained weights are replaced by their moving average within :meth:`whole`."""

    def __init__(self, model: WholeModel, optimizer: Optimizer, decay: float) -> None:
        """Average the trained weights of ``model``; a restored optimiser brings the average of its run."""
        super().__init__(model.model, model.ranks)
        self._trained, self._optimizer, self._decay = model, optimizer, decay
        self._averages = [optimizer.state.get(each, {}).get(AVERAGE, each.detach().clone()) for each in model.trained()]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the trained weights: ``decay * average + (1 - decay) * weight``."""
        for average, weight in zip(self._averages, self._trained.trained(), strict=True):
            _local(average).lerp_(_local(weight), 1 - self._decay)
            self._optimizer.state[weight][AVERAGE] = average

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Exchange the trained weights and the averages, and give the model its weights."""
        self._exchange()
        try:
            with self._trained.whole():
                yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for average, weight in zip(self._averages, self._trained.trained(), strict=True):
            kept = _local(weight).clone()
            _local(weight).copy_(_local(average))
            _local(average).copy_(kept)

    def vision_cache(self) -> VisionCache:
        """Return a vision cache of the averaged weights; it encodes within :meth:`whole`."""
        return self._trained.vision_cache()


def _local(value: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return value.to_local() if hasattr(value, "to_local") else value
