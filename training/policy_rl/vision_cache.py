"""Pictures as the language part of a model reads them, each looked at once however many prompts show it.

The panel of a failure stands in the Teacher's prompt of every one of its turns, the current picture in those of Student
and Teacher, and the first picture of a level in all episodes of its group: without this the picture part of the model
would be most of what hindsight costs.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...models.extras import need
from ..encode import EXTRA
from ..tensors import Tensor

torch: Any = need("torch", EXTRA)

SEEN_KEPT = 512 << 20
"""Bytes that are kept of what was seen, the least recently used given up. All pictures of an update of a 3B model at
the paper's sizes take 300 MB; one that is looked at twice may differ in its last bit."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the processor cuts it up."""

    name: str
    """Frame id: equal pictures have equal names."""
    patches: Tensor
    """Shape (patches, numbers)."""
    grid: Tensor
    """Patches over time, height and width, shape (3,)."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the model's forward takes in place of pixels; the names are those of the transformers library."""

    pooler_output: Sequence[Tensor]
    """Of each picture, shape (image tokens, width)."""
    deepstack_features: Sequence[Sequence[Tensor]]
    """The same for each deeper layer that pictures are added to; none in Qwen2.5-VL."""


class Eye:
    """The picture part of a model. What it keeps is right for as long as the weights stay as they are."""

    def __init__(
        self, model: Any, kept: int = SEEN_KEPT, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Look with ``model``; keep ``kept`` bytes, and nothing that has a gradient.

        Whoever computes with the model does so within ``around``, which makes its weights those that are meant.
        """
        self.model, self.around = model, around
        self._most = kept
        self.kept_bytes = 0
        self._kept: OrderedDict[str, tuple[Tensor, ...]] = OrderedDict()

    def look(self, pictures: Sequence[Picture]) -> Seen:
        """Return what the model sees in pictures, in their order; equal ones are looked at once."""
        seen: dict[str, tuple[Tensor, ...]] = {}
        new: dict[str, Picture] = {}
        for each in pictures:
            if each.name in self._kept:
                self._kept.move_to_end(each.name)
                seen[each.name] = self._kept[each.name]
            else:
                new.setdefault(each.name, each)
        if new:
            seen |= zip(new, self._features(list(new.values())), strict=True)
        layers = list(zip(*(seen[each.name] for each in pictures), strict=True))
        if not torch.is_grad_enabled():
            self._keep({name: seen[name] for name in new})
        return Seen(layers[0], layers[1:])

    def _features(self, pictures: Sequence[Picture]) -> list[tuple[Tensor, ...]]:
        device = self.model.device
        patches = torch.cat([each.patches for each in pictures]).to(device)
        grids = torch.stack([each.grid for each in pictures]).to(device)
        made = self.model.model.get_image_features(patches, grids, return_dict=True)
        return list(zip(made.pooler_output, *getattr(made, "deepstack_features", ()), strict=True))

    def _keep(self, seen: dict[str, tuple[Tensor, ...]]) -> None:
        for name, features in seen.items():
            self._kept[name] = tuple(each.clone() for each in features)  # a view would keep its whole batch
            self.kept_bytes += _bytes(features)
        while self.kept_bytes > self._most:
            self.kept_bytes -= _bytes(self._kept.popitem(last=False)[1])


def _bytes(features: Sequence[Tensor]) -> int:
    return sum(each.nbytes for each in features)
