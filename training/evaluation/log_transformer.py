"""A small transformer over the steps of a log: it points at a step and names the mode (a baseline without pictures).

Two layers of width 64. A step is its row of numbers, standardised on the training split, with a flag for each that is
missing; positions are learned. The pivot is a softmax over the steps that the episode has.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...datasets.predictors import LoggedFailure
from ...models.extras import need
from ..tensors import Tensor
from .log_features import LogFeatures

torch: Any = need("torch", "train")

WIDTH, HEADS, LAYERS = 64, 4, 2
BATCH = 64

UNKNOWN = -100
"""Number of a mode that the training split does not have."""


class Encoded(NamedTuple):
    """Failures as tensors."""

    numbers: Tensor
    """(batch, T, 2 width): standardised numbers, then a flag for each that is missing."""
    padding: Tensor
    """(batch, T): true where an episode has no such step."""
    steps: Tensor
    """(batch,): true pivot steps."""
    modes: Tensor
    """(batch,): numbers of the true modes."""

    def batches(self, rng: random.Random) -> Iterator["Encoded"]:
        """Yield the failures in a new order, in batches."""
        order = list(range(len(self.steps)))
        rng.shuffle(order)
        for start in range(0, len(order), BATCH):
            chosen = torch.tensor(order[start : start + BATCH])
            yield Encoded(*(each[chosen] for each in self))


class LogTransformer(torch.nn.Module):
    """The network; it takes failures and does its own encoding."""

    def __init__(self, features: LogFeatures, rows: Sequence[NDArray[np.float32]], modes: int) -> None:
        """Build it for the features of a training split, whose ``rows`` (T, width) set the scale of every number."""
        super().__init__()
        self._features = features
        stacked = np.concatenate(rows)
        known = ~np.isnan(stacked)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, stacked, 0.0).sum(axis=0) / count
        spread = np.sqrt(np.where(known, (stacked - mean) ** 2, 0.0).sum(axis=0) / count)
        self._mean, self._spread = mean, np.maximum(spread, 1e-3)
        self.enter = torch.nn.Linear(2 * features.width, WIDTH)
        self.places = torch.nn.Parameter(0.02 * torch.randn(features.steps, WIDTH))
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.body = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.point = torch.nn.Linear(WIDTH, 1)
        self.name = torch.nn.Linear(WIDTH, modes)

    def encode(self, failures: Sequence[LoggedFailure], modes: Sequence[str] = ()) -> "Encoded":
        """Turn failures into tensors, once for all epochs; without ``modes`` the labels of modes are left out."""
        longest, width = max(len(each.actions) for each in failures), self._features.width
        numbers = np.zeros((len(failures), longest, 2 * width), np.float32)
        padding = np.ones((len(failures), longest), bool)
        for place, failure in enumerate(failures):
            rows = (self._features.of(failure) - self._mean) / self._spread
            missing = np.isnan(rows)
            numbers[place, : len(rows), :width] = np.where(missing, 0.0, rows)
            numbers[place, : len(rows), width:] = missing
            padding[place, : len(rows)] = False
        number_of = {mode: number for number, mode in enumerate(modes)}
        return Encoded(
            torch.from_numpy(numbers),
            torch.from_numpy(padding),
            torch.tensor([each.pivot_step for each in failures]),
            torch.tensor([number_of.get(each.failure_mode, UNKNOWN) for each in failures]),
        )

    def forward(self, encoded: "Encoded") -> tuple[Tensor, Tensor]:
        """Return log-probabilities of the steps (batch, T) and scores of the modes (batch, modes)."""
        padding = encoded.padding
        hidden = self.enter(encoded.numbers) + self.places[: padding.shape[1]]
        hidden = self.body(hidden, src_key_padding_mask=padding)
        steps = self.point(hidden)[..., 0].masked_fill(padding, float("-inf")).log_softmax(dim=-1)
        pooled = hidden.masked_fill(padding[..., None], 0.0).sum(dim=1) / (~padding).sum(dim=1, keepdim=True)
        return steps, self.name(pooled)

    def loss(self, encoded: "Encoded") -> Tensor:
        """Return the mean negative log-likelihood of step and mode; a mode that was never seen counts for nothing."""
        steps, named = self(encoded)
        of_mode = torch.nn.functional.cross_entropy(named, encoded.modes, ignore_index=UNKNOWN)
        return -steps.gather(1, encoded.steps[:, None]).mean() + of_mode.nan_to_num(0.0)
