"""Weights that score replies: a model, a context manager that exchanges its weights meanwhile, and its vision cache.

One module in memory serves as the Student, as the weights of the start (its adapters switched off), and as the moving
average of the Student (its weights exchanged). The panel of a failure is in the Teacher's prompt of each of its turns,
the current picture in the prompts of Student and Teacher, and the first picture of a level in all episodes of
its group: the cache encodes each once, which would otherwise be most of the cost of hindsight.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...models.extras import need
from ..config import EXTRA
from ..tensors import Optimizer, Patches, Tensor

torch: Any = need("torch", EXTRA)

AVERAGE = "average"
"""Key of a weight's average in the optimiser's state, with which it is saved and restored."""
CACHE_BYTES = 512 << 20
"""Size of the cache; the least recently used pictures are dropped. All pictures of an update of a 3B model at the
paper's sizes take 300 MB. A picture that is encoded twice may differ in its last bit."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the processor splits it into patches."""

    name: str
    """Frame id: equal pictures have equal names."""
    patches: Patches
    grid: Tensor
    """Patches over time, height and width, shape (3,)."""


@dataclass(frozen=True, slots=True)
class EncodedPictures:
    """The input of the model's forward that replaces pixels; the field names are those of the transformers library."""

    pooler_output: Sequence[Tensor]
    """Features of each picture, shape (image tokens, width)."""
    deepstack_features: Sequence[Sequence[Tensor]]
    """Features per deeper layer that pictures are added to; empty for Qwen2.5-VL."""


class VisionCache:
    """The vision encoder of a model, with a cache that is valid until the weights change."""

    def __init__(
        self,
        model: Any,
        capacity: int = CACHE_BYTES,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Encode with ``model`` and keep up to ``capacity`` bytes of features without a gradient.

        Callers that compute with the model do so within ``around``, which selects its weights (with or without
        adapters).
        """
        self.model, self.around = model, around
        self._capacity = capacity
        self.cached_bytes = 0
        self._cached: OrderedDict[str, tuple[Tensor, ...]] = OrderedDict()

    def encode(self, pictures: Sequence[Picture]) -> EncodedPictures:
        """Return the features of pictures, in their order; equal pictures are encoded once."""
        features: dict[str, tuple[Tensor, ...]] = {}
        new: dict[str, Picture] = {}
        for each in pictures:
            if each.name in self._cached:
                self._cached.move_to_end(each.name)
                features[each.name] = self._cached[each.name]
            else:
                new.setdefault(each.name, each)
        if new:
            features |= zip(new, self._features(list(new.values())), strict=True)
        layers = list(zip(*(features[each.name] for each in pictures), strict=True))
        if not torch.is_grad_enabled():
            self._store({name: features[name] for name in new})
        return EncodedPictures(layers[0], layers[1:])

    def _features(self, pictures: Sequence[Picture]) -> list[tuple[Tensor, ...]]:
        device = self.model.device
        patches = torch.cat([each.patches for each in pictures]).to(device)
        grids = torch.stack([each.grid for each in pictures]).to(device)
        encoded = self.model.model.get_image_features(patches, grids, return_dict=True)
        return list(zip(encoded.pooler_output, *getattr(encoded, "deepstack_features", ()), strict=True))

    def _store(self, new: dict[str, tuple[Tensor, ...]]) -> None:
        for name, features in new.items():
            self._cached[name] = tuple(each.clone() for each in features)  # a view would keep its whole batch
            self.cached_bytes += sum(each.nbytes for each in features)
        while self.cached_bytes > self._capacity:
            self.cached_bytes -= sum(each.nbytes for each in self._cached.popitem(last=False)[1])


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
