"""A small transformer over the steps of a log, which predicts pivot step and mode (a baseline without pictures).

It has two layers of width 64. The input of a step is its row of features, standardised on the training split, with a
flag for each missing feature; positions are learned. The pivot is a softmax over the steps of the episode.
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
"""Number of a mode that is not in the training split."""


class Encoded(NamedTuple):
    """Failures as tensors."""

    numbers: Tensor
    """Shape (batch, T, 2 width): standardised features, then a flag for each missing one."""
    padding: Tensor
    """Shape (batch, T): true after the last step of an episode."""
    steps: Tensor
    """Shape (batch,): true pivot steps."""
    modes: Tensor
    """Shape (batch,): numbers of the true modes."""

    def batches(self, rng: random.Random) -> Iterator["Encoded"]:
        """Yield the failures in batches, shuffled."""
        order = list(range(len(self.steps)))
        rng.shuffle(order)
        for start in range(0, len(order), BATCH):
            chosen = torch.tensor(order[start : start + BATCH])
            yield Encoded(*(each[chosen] for each in self))


class LogTransformer(torch.nn.Module):
    """The network, which encodes failures itself."""

    def __init__(self, features: LogFeatures, rows: Sequence[NDArray[np.float32]], modes: int) -> None:
        """Build the network for some features; ``rows``, shape (T, width), of the training split set their scale."""
        super().__init__()
        self._features = features
        stacked = np.concatenate(rows)
        present = ~np.isnan(stacked)
        count = np.maximum(present.sum(axis=0), 1)
        mean = np.where(present, stacked, 0.0).sum(axis=0) / count
        spread = np.sqrt(np.where(present, (stacked - mean) ** 2, 0.0).sum(axis=0) / count)
        self._mean, self._spread = mean, np.maximum(spread, 1e-3)
        self.enter = torch.nn.Linear(2 * features.width, WIDTH)
        self.positions = torch.nn.Parameter(0.02 * torch.randn(features.steps, WIDTH))
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.body = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.point = torch.nn.Linear(WIDTH, 1)
        self.name = torch.nn.Linear(WIDTH, modes)

    def encode(self, failures: Sequence[LoggedFailure], modes: Sequence[str] = ()) -> "Encoded":
        """Return failures as tensors; without ``modes`` they have no labels of modes."""
        longest, width = max(len(each.actions) for each in failures), self._features.width
        numbers = np.zeros((len(failures), longest, 2 * width), np.float32)
        padding = np.ones((len(failures), longest), bool)
        for index, failure in enumerate(failures):
            rows = (self._features.of(failure) - self._mean) / self._spread
            missing = np.isnan(rows)
            numbers[index, : len(rows), :width] = np.where(missing, 0.0, rows)
            numbers[index, : len(rows), width:] = missing
            padding[index, : len(rows)] = False
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
        hidden = self.enter(encoded.numbers) + self.positions[: padding.shape[1]]
        hidden = self.body(hidden, src_key_padding_mask=padding)
        steps = self.point(hidden)[..., 0].masked_fill(padding, float("-inf")).log_softmax(dim=-1)
        pooled = hidden.masked_fill(padding[..., None], 0.0).sum(dim=1) / (~padding).sum(dim=1, keepdim=True)
        return steps, self.name(pooled)

    def loss(self, encoded: "Encoded") -> Tensor:
        """Return the mean negative log-likelihood of step and mode; an unknown mode has no weight."""
        steps, named = self(encoded)
        of_mode = torch.nn.functional.cross_entropy(named, encoded.modes, ignore_index=UNKNOWN)
        return -steps.gather(1, encoded.steps[:, None]).mean() + of_mode.nan_to_num(0.0)
