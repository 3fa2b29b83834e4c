"""Sampling with a seed per row of a batch, so that a reply does not depend on the other rows.

A token is sampled by adding Gumbel noise to the scaled scores and taking the largest: the distribution of softmax
sampling, with noise from one generator per row. Only rounding depends on the batch: kernels may add in a different
order for a different batch shape and decide a near tie differently.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..extras import need

torch: Any = need("torch", "transformers")
transformers: Any = need("transformers", "transformers")

Tensor = Any
"""A tensor of PyTorch; the type checker also runs where PyTorch is not installed."""


class SeededSampler(transformers.LogitsProcessor):
    """Logits processor that turns greedy decoding into sampling and records log-probabilities of chosen tokens.

    Log-probabilities are those of the model itself: of the raw scores, before temperature and nucleus, in float32.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        temperatures: Sequence[float],
        top_ps: Sequence[float],
        top_ks: Sequence[int],
        device: Any,
        banned: Sequence[int] = (),
    ) -> None:
        """Prepare one generator per row.

        Args:
            seeds: one per row; equal seeds on equal scores give equal tokens.
            temperatures: one per row; 0 takes the best token.
            top_ps: one per row; the smallest set of tokens that holds this share of the probability is kept.
            top_ks: one per row; number of best tokens that are kept, 0 for all.
            device: device of the scores; different kinds of devices generate different noise.
            banned: tokens that are never sampled; the others share their probability.
        """
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._greedy = torch.tensor([each == 0 for each in temperatures], device=device)[:, None]
        self._temperatures = torch.tensor([each or 1.0 for each in temperatures], device=device)[:, None]
        self._top_ps = torch.tensor(list(top_ps), device=device)[:, None] if min(top_ps) < 1 else None
        self._top_ks = list(top_ks)
        self._banned = list(banned)
        self._chosen: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores whose largest is the sampled token; shape (rows, vocabulary)."""
        del input_ids
        raw = scores.float()
        if self._banned:
            raw = raw.index_fill(1, torch.tensor(self._banned, device=raw.device), float("-inf"))
        scaled = raw / self._temperatures
        for row, kept in zip(scaled, self._top_ks, strict=True):
            if 0 < kept < len(row):
                row[row < row.topk(kept).values[-1]] = float("-inf")
        if self._top_ps is not None:
            scaled = _nucleus(scaled, self._top_ps)
        waits = torch.empty_like(scaled)
        for row, generator in zip(waits, self._generators, strict=True):
            row.exponential_(generator=generator)
        noisy = torch.where(self._greedy, raw, scaled - waits.log())
        token = noisy.argmax(dim=-1, keepdim=True)
        self._chosen.append(torch.log_softmax(raw, dim=-1).gather(1, token))
        return noisy

    def logprobs(self) -> Tensor:
        """Return the log-probabilities of the chosen tokens, shape (rows, steps)."""
        return torch.cat(self._chosen, dim=1)


class SchemaMask(transformers.LogitsProcessor):
    """Logits processor that keeps the rows that have a JSON schema to JSON of that schema, token by token."""

    def __init__(
        self, tokenizer: Any, schemas: Sequence[Mapping[str, Any] | None], width: int, ends: Sequence[int]
    ) -> None:
        """Prepare one grammar per row.

        Args:
            tokenizer: the tokenizer in llguidance's form.
            schemas: one per row; None for a row without one. A schema that llguidance does not know masks nothing.
            width: tokens of the prompts, padded.
            ends: tokens that end a reply.
        """
        guidance = need("llguidance", "transformers")
        self._masks = need("llguidance.torch", "transformers")
        self._width, self._ends = width, list(ends)
        grammar = partial(guidance.LLMatcher.grammar_from_json_schema, overrides={"whitespace_flexible": False})
        matchers = [
            None if each is None else guidance.LLMatcher(tokenizer, grammar(json.dumps(each)), log_level=0)
            for each in schemas
        ]
        self._matchers = {row: each for row, each in enumerate(matchers) if each is not None and not each.is_error()}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores with those of all tokens that the schema does not allow next at minus infinity."""
        mask, scores = self._masks.allocate_token_bitmask(*scores.shape), scores.clone()
        for row, matcher in self._matchers.items():
            if input_ids.shape[1] > self._width and not matcher.is_stopped():
                matcher.consume_token(int(input_ids[row, -1]))
            if not matcher.is_stopped():
                self._masks.fill_next_token_bitmask(matcher, mask, row)
            else:  # the answer is whole
                last = scores[row, self._ends].clone()
                scores[row] = float("-inf")
                scores[row, self._ends] = last
        self._masks.apply_token_bitmask_inplace(scores, mask.to(scores.device))
        return scores


def _nucleus(scores: Tensor, top_ps: Tensor) -> Tensor:
    """Remove the tokens outside the smallest set that holds the share ``top_ps``; the best one always stays."""
    ordered, places = scores.sort(dim=-1, descending=True)
    shares = ordered.softmax(dim=-1)
    outside = shares.cumsum(dim=-1) - shares >= top_ps
    outside[:, 0] = False
    dropped = torch.zeros_like(outside).scatter(1, places, outside)
    return scores.masked_fill(dropped, float("-inf"))
