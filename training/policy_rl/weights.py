"""Weights that score replies: a model, a context manager that exchanges its weights meanwhile, and its vision cache.

One module in memory serves as the Student, as the weights of the start (its adapters switched off), and as the moving
average of the Student (its weights exchanged). The panel of a failure is in the Teacher's prompt of each of its turns,
the current picture in the prompts of Student and Teacher, and the first picture of a level in all episodes of
its group: the cache encodes each once, which would otherwise be most of the cost of hindsight. A vision encoder that is
not trained, as with adapters of the language model, encodes each picture once for generation, scores and updates.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...models.extras import need
from ..config import EXTRA
from ..tensors import Optimizer, Patches, Tensor

torch: Any = need("torch", EXTRA)

AVERAGE = "average"
"""Key of a weight's average in the optimiser's state, with which it is saved and restored."""
CACHE_BYTES = 1 << 30
"""Size of the cache; the least recently used pictures are dropped. All pictures of an update of a 3B model at the
paper's sizes take 300 MB, in navigation 600 MB. A picture that is encoded twice may differ in its last bit."""

Value = TypeVar("Value")


class ByteCache(Generic[Value]):
    """A cache of values by name with a limit in bytes; the least recently used are dropped."""

    def __init__(self, capacity: int) -> None:
        """Keep values of up to ``capacity`` bytes."""
        self._capacity, self.bytes = capacity, 0
        self._entries: OrderedDict[str, tuple[Value, int]] = OrderedDict()

    def get(self, name: str) -> Value | None:
        """Return a value, which is then the most recently used, or None."""
        if name not in self._entries:
            return None
        self._entries.move_to_end(name)
        return self._entries[name][0]

    def put(self, name: str, value: Value, size: int) -> None:
        """Keep a value of ``size`` bytes."""
        self.bytes += size - self._entries.pop(name, (None, 0))[1]
        self._entries[name] = value, size
        while self.bytes > self._capacity:
            self.bytes -= self._entries.popitem(last=False)[1][1]


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


def has_frozen_vision(model: Any) -> bool:
    """Return whether the vision encoder of a model is not trained."""
    encoder = getattr(model.model, "visual", None)
    return encoder is not None and not any(each.requires_grad for each in encoder.parameters())


@contextmanager
def showing(model: Any, features: EncodedPictures | None) -> Iterator[None]:
    """Let the model read encoded pictures in place of the pixels that it is given within a block.

    The library takes encoded pictures as an argument only from version 5.20 on.
    """
    if features is None:
        yield
        return

    def encoded(pixel_values: Any, image_grid_thw: Any = None, **_: Any) -> EncodedPictures:
        del pixel_values, image_grid_thw  # generate() reads the names of the parameters
        return features

    before = vars(model.model).get("get_image_features")
    model.model.get_image_features = encoded
    try:
        yield
    finally:
        if before is None:
            del model.model.get_image_features
        else:
            model.model.get_image_features = before


Features = ByteCache[tuple[Tensor, ...]]
"""Features of pictures by name: of the encoder's output and of each deeper layer."""


class VisionCache:
    """The vision encoder of a model, with a cache that is valid until its weights change."""

    def __init__(
        self,
        model: Any,
        features: Features | None = None,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Encode with ``model`` and keep features without a gradient in ``features``, by default a new cache.

        Callers that compute with the model do so within ``around``, which selects its weights (with or without
        adapters).
        """
        self.model, self.around = model, around
        self.cached: Features = ByteCache(CACHE_BYTES) if features is None else features
        self._frozen = has_frozen_vision(model)

    def encode(self, pictures: Sequence[Picture]) -> EncodedPictures:
        """Return the features of pictures, in their order; equal pictures are encoded once."""
        features: dict[str, tuple[Tensor, ...]] = {}
        new: dict[str, Picture] = {}
        for each in pictures:
            cached = self.cached.get(each.name)
            if cached is None:
                new.setdefault(each.name, each)
            else:
                features[each.name] = cached
        if new:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self._frozen):
                features |= zip(new, self._features(list(new.values())), strict=True)
        if self._frozen or not torch.is_grad_enabled():
            for name in new:
                kept = tuple(each.clone() for each in features[name])  # a view would keep its whole batch
                self.cached.put(name, kept, sum(each.nbytes for each in kept))
        layers = list(zip(*(features[each.name] for each in pictures), strict=True))
        return EncodedPictures(layers[0], layers[1:])

    def _features(self, pictures: Sequence[Picture]) -> list[tuple[Tensor, ...]]:
        device = self.model.device
        patches = torch.cat([each.patches for each in pictures]).to(device)
        grids = torch.stack([each.grid for each in pictures]).to(device)
        encoded = self.model.model.get_image_features(patches, grids, return_dict=True)
        return list(zip(encoded.pooler_output, *getattr(encoded, "deepstack_features", ()), strict=True))


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Weights of a model."""

    model: Any
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context manager that puts the weights into the model; by default the model keeps its own."""
    features: Features | None = None
    """Features of pictures, if the vision encoder is not trained; all weights of the model then share them."""

    def vision_cache(self) -> VisionCache:
        """Return a vision cache, valid until the weights of the vision encoder change."""
        return VisionCache(self.model, self.features, self.around)


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
