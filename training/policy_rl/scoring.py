"""Log-probabilities of replies: Student, reference and Teacher go through one function, in one engine and precision.

A gate of slope 5 turns 0.1 nats of noise between two engines into 0.12 of gate, so the log-probabilities of the engine
that generated a reply are not used. Hindsight stands after the current picture, so the prompts of Student and Teacher
begin alike: a Teacher of the Student's weights goes on from the Student's keys and values. Tokens that stand for
pictures are never sampled and have no probability here; if a stored reply contains one, it is scored as the padding
token and has no weight (see :meth:`.Encoder.join`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...core.messages import EncodedFrame, PromptMessages
from ...models.base import ChatRequest, image_ids
from ...models.extras import need
from ...models.transformers.model import picture_of
from ..config import EXTRA
from ..encode import EncodedPrompt, Encoder
from ..tensors import CandidateIds, Tensor, TokenMask
from .weights import ByteCache, Picture, VisionCache, showing

torch: Any = need("torch", EXTRA)
transformers: Any = need("transformers", EXTRA)
checkpointing: Any = need("torch.utils.checkpoint", EXTRA)

SCORED_AT_ONCE = 1024
"""Tokens whose scores over the vocabulary are in memory together."""
PROMPT_CACHE_BYTES = 4 << 30
"""Size of the cache of encoded prompts in main memory. An update of navigation at the paper's sizes takes 3 GB: patches
of 1,600 frames and of the panels, each kept once however many prompts show it."""
TOKEN_BYTES = 48
"""Bytes of a token of an encoded prompt: two numbers, and two places in tuples."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reply and the prompt under which it is scored."""

    prompt: PromptMessages
    tokens: tuple[int, ...]
    """Tokens as they were sampled, with the end token; at least one."""


Names = Sequence[str]
"""Names of the pictures of a prompt, in the order in which it shows them."""
Measured = Mapping[str, Tensor]
"""Quantities of the tokens of a reply by name, shape (tokens, ...)."""
Measure = Callable[[Tensor], Measured]
"""Returns quantities per token, shape (tokens, ...), of log-probabilities of the vocabulary, (tokens, vocabulary)."""
SAMPLED = "sampled"
"""Key of the log-probabilities of the reply's own tokens."""


def nothing_more(logprobs: Tensor) -> Measured:
    """Return no quantities but the log-probabilities of the reply's own tokens."""
    del logprobs
    return {}


def entropy(logprobs: Tensor) -> Measured:
    """Return the entropy of the distribution at each token, in nats."""
    return {"entropy": torch.special.entr(logprobs.exp()).sum(-1)}


@dataclass(frozen=True, slots=True)
class Correction:
    """A certified reply in place of the one that was sampled."""

    row: Row
    supervised: int
    """Number of its last tokens that are learned: the action and the end token."""


@dataclass(frozen=True, slots=True)
class TurnSample:
    """One turn of an episode as a training sample."""

    episode_id: str
    t: int
    """Step, 0-based."""
    student: Row
    """Reply tokens under the Student's prompt."""
    teacher: Row | None
    """Same tokens under the Teacher's prompt; None where the turn is not distilled."""
    advantage: float
    """Advantage of the episode, and of the turn itself where there is a credit rule."""
    thinking: int
    """Number of tokens that belong to the thoughts; the others are the action."""
    at_pivot: bool | None = None
    """Whether this is the solver's pivot step; None where it has no answer, or the episode succeeded."""
    correction: Correction | None = None
    """Correction of this turn, in the arms that learn from the solver's plan."""


class Scorer:
    """Scores replies under any weights of one architecture."""

    def __init__(self, encoder: Encoder, *, half: bool = False, capacity: int = PROMPT_CACHE_BYTES) -> None:
        """Score with prompts of one processor, in bfloat16 if ``half``; cache ``capacity`` bytes of encoded prompts."""
        self.encoder, self.half = encoder, half
        self._cached: ByteCache[Any] = ByteCache(capacity)
        """Encoded prompts without pictures by hash, and patches by frame id."""
        self.pictures: dict[str, EncodedFrame] = {}
        """Pictures of the prompts, by frame id; the caller sets them."""

    def encoded(
        self, prompt: PromptMessages | ChatRequest, pictures: Mapping[str, EncodedFrame] | None = None
    ) -> EncodedPrompt:
        """Return a prompt as the model reads it; its pictures are in ``pictures``, by default in :attr:`pictures`."""
        names = image_ids(prompt.messages)
        tokens: EncodedPrompt | None = self._cached.get(prompt.prompt_hash)
        patches = [self._cached.get(name) for name in names]
        if tokens is None or any(each is None for each in patches):
            frames = self.pictures if pictures is None else pictures
            made = self.encoder.prompt(prompt.messages, [picture_of(frames[name]) for name in names])
            tokens = replace(made, patches=())
            self._cached.put(prompt.prompt_hash, tokens, TOKEN_BYTES * len(made.ids))
            patches = [each.clone() for each in made.patches]  # a view would keep all pictures of the prompt
            for name, each in zip(names, patches, strict=True):
                self._cached.put(name, each, each.nbytes)
        return replace(tokens, patches=tuple(patches))

    def length(self, row: Row) -> int:
        """Return the number of tokens of prompt and reply."""
        tokens: EncodedPrompt | None = self._cached.get(row.prompt.prompt_hash)
        return len((tokens or self.encoded(row.prompt)).ids) + len(row.tokens)

    def __call__(
        self, model: Any, rows: Sequence[Row], cache: VisionCache | None = None, candidates: CandidateIds | None = None
    ) -> Tensor:
        """Return the log-probability of every reply token, row after row, in float32; shape (tokens,).

        With ``candidates``, also those of k candidates in the place of each reply token; shape (tokens, 1 + k).

        The result has a gradient where gradients are enabled. Values of placeholder tokens have no meaning. ``cache``
        holds pictures that this model encoded with the same weights; without it, pictures are encoded in this call.
        """
        with self._autocast(model):
            hidden, targets = self._hidden(model, rows, cache)
            columns = targets[:, None]
            if candidates is not None:
                columns = torch.cat([columns, candidates.to(columns.device)], dim=1)
            pieces = zip(hidden.split(SCORED_AT_ONCE), columns.split(SCORED_AT_ONCE), strict=True)
            values = torch.cat([self._chosen(model.get_output_embeddings(), each, chosen) for each, chosen in pieces])
        return values.squeeze(1) if candidates is None else values

    @torch.no_grad()
    def measured(self, model: Any, rows: Sequence[Row], cache: VisionCache, measure: Measure) -> list[Measured]:
        """Return what ``measure`` makes of the scores at each reply token, for each row, on the CPU; no gradient.

        Key :data:`SAMPLED` holds the log-probabilities of the reply's own tokens.
        """
        with self._autocast(model):
            return self._quantities(model, rows, self._hidden(model, rows, cache), measure)

    @torch.no_grad()
    def measured_pairs(
        self, model: Any, pairs: Sequence[tuple[Row, Row]], cache: VisionCache, measures: tuple[Measure, Measure]
    ) -> tuple[list[Measured], list[Measured]]:
        """Return the quantities of both rows of each pair, as :meth:`measured` does; see there.

        What was computed for the first tokens of the first prompts is used for the second ones, as far as the two
        prompts of every pair agree. If all pairs are of equal rows, both have exactly the same scores.
        """
        first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        with self._autocast(model):
            past = transformers.DynamicCache() if first != second and _only_attends(model) else None
            states = self._hidden(model, first, cache, past)
            measured = self._quantities(model, first, states, measures[0])
            if past is not None:
                past.crop(self._common_tokens(pairs) - past.get_seq_length())
            if first != second:
                states = self._hidden(model, second, cache, past)
            return measured, self._quantities(model, second, states, measures[1])

    def _common_tokens(self, pairs: Sequence[tuple[Row, Row]]) -> int:
        """Return the number of first tokens that the two prompts of every pair have in common."""
        prompts = [(self.encoded(first.prompt), self.encoded(second.prompt)) for first, second in pairs]
        names = [(image_ids(first.prompt.messages), image_ids(second.prompt.messages)) for first, second in pairs]
        return common_tokens(prompts, names)

    def _quantities(
        self, model: Any, rows: Sequence[Row], states: tuple[Tensor, Tensor], measure: Measure
    ) -> list[Measured]:
        """Return the quantities of rows from the hidden states before their reply tokens, and these tokens."""
        pieces: list[Measured] = []
        for hidden, chosen in zip(*(each.split(SCORED_AT_ONCE) for each in states), strict=True):
            every = self._logprobs(model.get_output_embeddings(), hidden)
            values = {SAMPLED: every.gather(1, chosen[:, None]).squeeze(1), **measure(every)}
            pieces.append({name: value.cpu() for name, value in values.items()})
        lengths = [len(row.tokens) for row in rows]
        columns = {name: torch.cat([piece[name] for piece in pieces]).split(lengths) for name in pieces[0]}
        return [{name: parts[index] for name, parts in columns.items()} for index in range(len(rows))]

    def _autocast(self, model: Any) -> Any:
        return torch.autocast(torch.device(model.device).type, torch.bfloat16, enabled=self.half)

    def _hidden(
        self, model: Any, rows: Sequence[Row], cache: VisionCache | None, past: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Return the last hidden state before every reply token, shape (tokens, width), and these tokens.

        ``past`` holds keys and values of the first tokens of every row, equally many in each, and takes those of the
        other tokens.
        """
        prompts = [self.encoded(row.prompt) for row in rows]
        start, device = 0 if past is None else past.get_seq_length(), model.device
        batch = {
            name: each.to(device)
            for name, each in self.encoder.join(prompts, [row.tokens for row in rows]).items()
            if name not in ("labels", "pixel_values")
        }
        pictures = [
            picture
            for row, prompt in zip(rows, prompts, strict=True)
            for picture in pictures_of(row.prompt, prompt)[pictures_before(prompt, start) :]
        ]
        positions = [
            (number, len(prompt.ids) + index)
            for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True))
            for index in range(len(row.tokens))
        ]
        row_of, column = torch.tensor(positions, device=device).unbind(1)
        features = (cache or VisionCache(model, ByteCache(0))).encode(pictures) if pictures else None
        targets = batch["input_ids"][row_of, column]
        if start:
            places = torch.arange(batch["input_ids"].shape[1], device=device).expand_as(batch["input_ids"])
            if "image_grid_thw" in batch:
                places, _ = model.model.get_rope_index(**batch)
            batch |= {name: batch[name][:, start:] for name in ("input_ids", "mm_token_type_ids")}
            batch["position_ids"] = places[..., start:]
        if pictures:
            batch["pixel_values"] = pictures[0].patches  # not read
        with showing(model, features):
            made = model.model(**batch, past_key_values=past, use_cache=past is not None)
        return made.last_hidden_state[row_of, column - 1 - start], targets

    def _chosen(self, head: Any, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the log-probabilities of ``targets``, shape (tokens, k); the backward pass recomputes the scores."""

        def chosen(states: Tensor) -> Tensor:
            return self._logprobs(head, states).gather(1, targets)

        if torch.is_grad_enabled() and hidden.requires_grad:
            return checkpointing.checkpoint(chosen, hidden, use_reentrant=False)
        return chosen(hidden)

    def _logprobs(self, head: Any, hidden: Tensor) -> Tensor:
        """Return the log-probabilities of the whole vocabulary, shape (tokens, vocabulary)."""
        banned = torch.tensor(self.encoder.placeholders, dtype=torch.long, device=hidden.device)
        return head(hidden).float().index_fill(1, banned, float("-inf")).log_softmax(dim=-1)

    def valid(self, rows: Sequence[Row]) -> TokenMask:
        """Return which reply tokens count: all but placeholders, row after row."""
        tokens = torch.tensor([token for row in rows for token in row.tokens], dtype=torch.long)
        return ~torch.isin(tokens, torch.tensor(self.encoder.placeholders, dtype=torch.long))


def pictures_of(shown: PromptMessages | ChatRequest, prompt: EncodedPrompt) -> list[Picture]:
    """Return the pictures of an encoded prompt, in the order in which it shows them."""
    if prompt.grids is None:
        return []
    return [Picture(*each) for each in zip(image_ids(shown.messages), prompt.patches, prompt.grids, strict=True)]


def _only_attends(model: Any) -> bool:
    """Whether keys and values are all that the model's layers keep of earlier tokens."""
    kinds: Sequence[str] = getattr(model.config.get_text_config(), "layer_types", None) or ()
    return hasattr(model.model, "get_rope_index") and set(kinds) <= {"full_attention", "sliding_attention"}


def picture_places(prompt: EncodedPrompt) -> list[range]:
    """Return the places of the tokens of each picture; marks of text stand between two pictures."""
    edges = [
        place for place, (before, kind) in enumerate(pairwise((0, *prompt.kinds, 0))) if bool(before) != bool(kind)
    ]
    return [range(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def pictures_before(prompt: EncodedPrompt, tokens: int) -> int:
    """Return the number of pictures within the first ``tokens`` tokens."""
    return sum(place.stop <= tokens for place in picture_places(prompt)) if tokens else 0


def common_tokens(pairs: Sequence[tuple[EncodedPrompt, EncodedPrompt]], names: Sequence[tuple[Names, Names]]) -> int:
    """Return the number of first tokens that the two prompts of every pair have in common.

    Pictures are equal if their ``names`` are, and are never cut. At least one token of each second prompt is left,
    because the state of its last token is needed.
    """
    tokens = min(min(len(first.ids), len(second.ids) - 1) for first, second in pairs)
    for (first, second), (mine, others) in zip(pairs, names, strict=True):
        tokens = next((place for place in range(tokens) if first.ids[place] != second.ids[place]), tokens)
        places = zip(picture_places(second), mine, others, strict=False)
        tokens = min(tokens, next((place.start for place, one, other in places if one != other), tokens))
    shown = [place for _, second in pairs for place in picture_places(second)]
    while cut := [place.start for place in shown if place.start < tokens < place.stop]:
        tokens = min(cut)
    return tokens


def micro_batches(lengths: Sequence[int], budget: int, kinds: Sequence[Any] | None = None) -> list[list[int]]:
    """Return micro-batches as lists of row indices: rows of similar length, at most ``budget`` tokens with padding.

    Args:
        lengths: number of tokens of each row; a row that exceeds the budget is alone.
        budget: number of tokens.
        kinds: kind of each row; rows of different kinds do not share a micro-batch.
    """
    labels = kinds if kinds is not None else [0] * len(lengths)
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda each: (str(labels[each]), lengths[each], each)):
        current = batches[-1] if batches else []
        fits = (len(current) + 1) * lengths[index] <= budget
        if current and fits and labels[current[-1]] == labels[index]:
            current.append(index)
        else:
            batches.append([index])
    return batches


@dataclass(frozen=True, slots=True)
class Teacher:
    """A model that scores replies under the Teacher's prompts."""

    scorer: Scorer
    cache: VisionCache
    """Vision cache of the model, which is ``cache.model``."""


def measure_rows(
    scorer: Scorer, cache: VisionCache, rows: Sequence[Row], batches: Sequence[Sequence[int]], measure: Measure
) -> dict[int, Measured]:
    """Return quantities of the rows of ``batches`` under the weights of ``cache``, by index, on the CPU."""
    measured: dict[int, Measured] = {}
    for indices in batches:
        with cache.around():
            values = scorer.measured(cache.model, [rows[index] for index in indices], cache, measure)
        measured.update(zip(indices, values, strict=True))
    return measured


def measure_pairs(
    scorer: Scorer,
    cache: VisionCache,
    pairs: Sequence[tuple[Row, Row]],
    batches: Sequence[Sequence[int]],
    measures: tuple[Measure, Measure],
) -> tuple[dict[int, Measured], dict[int, Measured]]:
    """Return quantities of both rows of the pairs in ``batches``; see :meth:`Scorer.measured_pairs`."""
    measured: tuple[dict[int, Measured], dict[int, Measured]] = {}, {}
    for indices in batches:
        with cache.around():
            both = scorer.measured_pairs(cache.model, [pairs[index] for index in indices], cache, measures)
        for by_index, values in zip(measured, both, strict=True):
            by_index.update(zip(indices, values, strict=True))
    return measured
