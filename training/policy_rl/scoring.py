"""Log-probabilities of replies: Student, reference and Teacher go through one function, in one engine and precision.

A gate of slope 5 turns 0.1 nats of noise between two engines into 0.12 of gate, so what generated a reply is never
asked how likely it was. Tokens that stand for pictures are never drawn and have no probability here; one that a
stored reply holds all the same is scored as the padding token and weighs nothing (see :meth:`.Encoder.join`).
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...messages import EncodedFrame, PromptMessages
from ...models.base import image_ids
from ...models.extras import need
from ...models.transformers.model import picture_of
from ..encode import EXTRA, EncodedPrompt, Encoder
from ..tensors import Tensor
from .vision_cache import Eye, Picture

torch: Any = need("torch", EXTRA)
checkpointing: Any = need("torch.utils.checkpoint", EXTRA)

SCORED_AT_ONCE = 1024
"""Tokens whose scores over the vocabulary are in memory together."""
PIXELS_KEPT = 64 << 20
"""Bytes of encoded pictures that are kept, the least recently used given up: rollouts of a level share most prompts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reply and the prompt under which it is scored."""

    prompt: PromptMessages
    tokens: tuple[int, ...]
    """As they were sampled, the end token included; at least one."""


class Scorer:
    """Scores replies under any weights of one architecture."""

    def __init__(self, encoder: Encoder, *, half: bool = False, kept: int = PIXELS_KEPT) -> None:
        """Score with prompts of one processor; ``half`` computes in bfloat16, ``kept`` bytes of pixels are kept."""
        self.encoder, self.half = encoder, half
        self._kept = kept
        self._bytes = 0
        self._prompts: OrderedDict[str, EncodedPrompt] = OrderedDict()
        self.pictures: dict[str, EncodedFrame] = {}
        """Every picture once, by frame id; the caller fills and empties it."""

    def encoded(self, prompt: PromptMessages) -> EncodedPrompt:
        """Return a prompt as the model reads it; its pictures have to be among :attr:`pictures`."""
        known = self._prompts.pop(prompt.prompt_hash, None)
        if known is None:
            shown = [picture_of(self.pictures[key]) for key in image_ids(prompt.messages)]
            known = self.encoder.prompt(prompt.messages, shown)
            self._bytes += known.bytes
        self._prompts[prompt.prompt_hash] = known
        while self._bytes > self._kept and len(self._prompts) > 1:
            self._bytes -= self._prompts.popitem(last=False)[1].bytes
        return known

    def length(self, row: Row) -> int:
        """Return the tokens of prompt and reply together."""
        return len(self.encoded(row.prompt).ids) + len(row.tokens)

    def __call__(self, model: Any, rows: Sequence[Row], eye: Eye | None = None) -> Tensor:
        """Return the log-probability of every reply token, row after row, in float32; shape (tokens,).

        A gradient flows where it is enabled. A token whose place a placeholder had is not worth reading. ``eye`` is the
        model's and remembers pictures of earlier calls with the same weights; without one, those of this call.
        """
        prompts = [self.encoded(row.prompt) for row in rows]
        device = model.device
        batch = {
            name: each.to(device)
            for name, each in self.encoder.join(prompts, [row.tokens for row in rows]).items()
            if name not in ("labels", "pixel_values")
        }
        pictures = [picture for row, prompt in zip(rows, prompts, strict=True) for picture in pictures_of(row, prompt)]
        places = [
            (number, len(prompt.ids) + place)
            for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True))
            for place in range(len(row.tokens))
        ]
        row_of, column = torch.tensor(places, device=device).unbind(1)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=self.half):
            seen = {"image": (eye or Eye(model, kept=0)).look(pictures)} if pictures else None
            states = model.model(**batch, mm_encoder_outputs=seen, use_cache=False).last_hidden_state
            hidden = states[row_of, column - 1]
            targets = batch["input_ids"][row_of, column]
            pieces = zip(hidden.split(SCORED_AT_ONCE), targets.split(SCORED_AT_ONCE), strict=True)
            return torch.cat([self._chosen(model.get_output_embeddings(), each, chosen) for each, chosen in pieces])

    def _chosen(self, head: Any, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the log-probabilities of ``targets``, shape (tokens,); scores are made again for the gradient."""
        banned = torch.tensor(self.encoder.placeholders, dtype=torch.long, device=hidden.device)

        def chosen(states: Tensor) -> Tensor:
            scores = head(states).float().index_fill(1, banned, float("-inf"))
            return scores.log_softmax(dim=-1).gather(1, targets[:, None]).squeeze(1)

        if torch.is_grad_enabled() and hidden.requires_grad:
            return checkpointing.checkpoint(chosen, hidden, use_reentrant=False)
        return chosen(hidden)

    def valid(self, rows: Sequence[Row]) -> Tensor:
        """Return which reply tokens count: all but placeholders, row after row; bool, shape (tokens,)."""
        tokens = torch.tensor([token for row in rows for token in row.tokens], dtype=torch.long)
        return ~torch.isin(tokens, torch.tensor(self.encoder.placeholders, dtype=torch.long))


def pictures_of(row: Row, prompt: EncodedPrompt) -> list[Picture]:
    """Return the pictures of an encoded prompt, in the order in which it shows them."""
    if prompt.grids is None:
        return []
    patches = prompt.pixels.split(prompt.grids.prod(dim=-1).tolist())
    return [Picture(*each) for each in zip(image_ids(row.prompt.messages), patches, prompt.grids, strict=True)]


def micro_batches(lengths: Sequence[int], budget: int, kinds: Sequence[Any] | None = None) -> list[list[int]]:
    """Split rows into micro-batches of like length, of at most ``budget`` tokens with their padding; return places.

    Args:
        lengths: tokens of each row; one that exceeds the budget is alone.
        budget: tokens.
        kinds: rows of different kinds are not mixed; all are of one kind when None.
    """
    labels = kinds if kinds is not None else [0] * len(lengths)
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda each: (str(labels[each]), lengths[each], each)):
        current = batches[-1] if batches else []
        fits = (len(current) + 1) * lengths[place] <= budget
        if current and fits and labels[current[-1]] == labels[place]:
            current.append(place)
        else:
            batches.append([place])
    return batches


def score_rows(
    scorer: Scorer, eyes: Mapping[str, Eye], rows: Sequence[Row], batches: Sequence[Sequence[int]]
) -> dict[str, dict[int, Tensor]]:
    """Score rows under several weights, each with its eye, without a gradient.

    Returns:
        For each model the log-probabilities of each row by its place, on the CPU, shape (tokens of the row,).
    """
    scored: dict[str, dict[int, Tensor]] = {name: {} for name in eyes}
    with torch.no_grad():
        for places in batches:
            chosen = [rows[place] for place in places]
            for name, eye in eyes.items():
                with eye.around():
                    pieces = scorer(eye.model, chosen, eye).cpu().split([len(row.tokens) for row in chosen])
                scored[name].update(zip(places, pieces, strict=True))
    return scored


class Teacher(Protocol):
    """Whoever scores replies under the Teacher's prompts."""

    def show(self, pictures: Mapping[str, EncodedFrame]) -> None:
        """Take every picture of the prompts to come, by frame id."""
        ...

    def length(self, row: Row) -> int:
        """Return what a row adds to a micro-batch, in tokens."""
        ...

    def score(self, rows: Sequence[Row], batches: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        """Return log-probabilities of the rows in ``batches`` by place; one that cannot be scored is left out."""
        ...


class LoadedTeacher:
    """A Teacher in this process: the trained model itself, or a frozen one with prompts of its own."""

    def __init__(self, scorer: Scorer, eye: Eye) -> None:
        """Score with the model of ``eye``."""
        self.scorer, self._eye = scorer, eye

    def show(self, pictures: Mapping[str, EncodedFrame]) -> None:
        """Take the pictures of the prompts to come."""
        self.scorer.pictures = dict(pictures)

    def length(self, row: Row) -> int:
        """Return the tokens of prompt and reply together."""
        return self.scorer.length(row)

    def score(self, rows: Sequence[Row], batches: Sequence[Sequence[int]]) -> dict[int, Tensor]:
        """See :func:`score_rows`."""
        return score_rows(self.scorer, {"teacher": self._eye}, rows, batches)["teacher"]
