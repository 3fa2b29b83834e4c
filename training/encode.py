"""The tensors of a batch, from chat messages, pictures and replies; both stages use them.

The processor's own chat template and image processor encode the prompt, exactly as for generation
(:mod:`pivot.models.transformers`); the reply is appended as tokens, followed by the token that ends a turn. Only the
reply and its end token are supervised. Rows are padded on the right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Any

from PIL import Image

from ..core.errors import TrainingError
from ..core.messages import THINK_TAGS, THOUGHT_MARKS, bare_messages, in_think_tags
from ..models.extras import need
from .config import EXTRA
from .tensors import Grids, Patches

OPENED, CLOSED = f"<{THINK_TAGS[0]}>", f"</{THINK_TAGS[0]}>"
"""Tags of a thought; templates of thinking models end the prompt with the first."""
_QUESTION = ({"role": "user", "content": [{"type": "text", "text": "question"}]},)
IGNORED = -100
"""Label of a token that is not supervised."""

Batch = dict[str, Any]
"""``input_ids``, ``attention_mask``, ``mm_token_type_ids``, ``labels``: (records, tokens); ``pixel_values``: (patches,
numbers); ``image_grid_thw``: (pictures, 3)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A prompt with its pictures, and the tokens of the reply."""

    prompt: Sequence[Mapping[str, Any]]
    pictures: Sequence[Image.Image]
    tokens: Sequence[int]
    """Tokens of the reply, with the end token."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """An encoded prompt."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    """Kind of each token, text or picture; the model derives positions from it."""
    patches: tuple[Patches, ...] = ()
    """Pixels of each picture, shape (patches, numbers)."""
    grids: Grids | None = None
    """Patches over time, height and width of each picture, shape (pictures, 3); None without pictures."""


class Encoder:
    """The processor of a model, for training."""

    def __init__(self, processor: Any, template: Mapping[str, Any] | None = None) -> None:
        """Wrap a processor.

        Args:
            processor: processor of the model.
            template: arguments of its chat template, such as ``{"enable_thinking": False}``.

        Raises:
            TrainingError: its chat template does not end a turn with the tokenizer's end token.
        """
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.template = dict(template or {})
        self._torch = need("torch", EXTRA)
        self.end = self._end_token()
        prompt = self.prompt_text(_QUESTION).rstrip()
        self.closing = next((end for start, end in THOUGHT_MARKS.items() if prompt.endswith(start)), None)
        """Mark that closes the thought which the template opens at the end of the prompt; None if it opens none."""
        pad = self.tokenizer.pad_token_id
        self.pad: int = self.end if pad is None else pad

    def _end_token(self) -> int:
        """Return the token that ends a reply: the first one after it in the chat template."""
        dialogue = [*_QUESTION, {"role": "assistant", "content": [{"type": "text", "text": "answer"}]}]
        shown = self.processor.apply_chat_template(dialogue, tokenize=False, **self.template)
        before, _, rest = shown.rpartition("answer")
        after = self.tokenizer(rest, add_special_tokens=False)["input_ids"] if before else []
        if not after or after[0] != self.tokenizer.eos_token_id:
            raise TrainingError(
                f"the chat template puts {rest[:40]!r} after a reply, expected {self.tokenizer.eos_token!r}, the "
                "tokenizer's end token; train a model whose template ends a turn with it, such as Qwen2.5-VL-Instruct"
            )
        return after[0]

    def special_tokens(self) -> frozenset[int]:
        """Return the tokens that no text of a record may contain, such as placeholders and ends of turns."""
        return frozenset(self.tokenizer.all_special_ids) | set(self.placeholders)

    def reply_tokens(self, text: str) -> list[int]:
        """Return the tokens of a reply, with the end token.

        Where the template opens a thought at the end of the prompt, the reply begins within it: the text loses its own
        opening tag, or gets a closing one if it has no thought.
        """
        if self.closing is not None:
            thought, closed, rest = in_think_tags(text).removeprefix(OPENED).partition(CLOSED)
            text = f"{thought}{self.closing}{rest}" if closed else f"{self.closing}\n\n{text}"
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end]

    def prompt_text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the rendered prompt, up to the start of its reply."""
        return self.processor.apply_chat_template(
            bare_messages(messages), tokenize=False, add_generation_prompt=True, **self.template
        )

    @property
    def placeholders(self) -> tuple[int, ...]:
        """The tokens that stand for pictures: prompts contain them, replies must not."""
        names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        marks = (getattr(self.processor, name, None) for name in names)
        return tuple(sorted({each for each in marks if isinstance(each, int)}))

    def prompt(self, messages: Sequence[Mapping[str, Any]], pictures: Sequence[Image.Image]) -> EncodedPrompt:
        """Return the encoded prompt with its pictures, up to the start of its reply."""
        text, shown = self.prompt_text(messages), list(pictures)
        made = self.processor(text=[text], images=[shown] if shown else None, add_special_tokens=False)
        ids, kinds = tuple(made["input_ids"][0]), tuple(made["mm_token_type_ids"][0])
        if not shown:
            return EncodedPrompt(ids, kinds)
        grids = self._torch.as_tensor(made["image_grid_thw"])
        patches = self._torch.as_tensor(made["pixel_values"]).split(grids.prod(dim=-1).tolist())
        return EncodedPrompt(ids, kinds, tuple(patches), grids)

    def batch(self, replies: Sequence[Reply]) -> Batch:
        """Return the tensors of some replies; nothing is truncated."""
        prompts = [self.prompt(reply.prompt, reply.pictures) for reply in replies]
        return self.join(prompts, [reply.tokens for reply in replies])

    def join(self, prompts: Sequence[EncodedPrompt], replies: Sequence[Sequence[int]]) -> Batch:
        """Return the tensors of prompts followed by replies, one row each.

        A picture's placeholder within a reply has no picture: the padding token replaces it and is not supervised.
        """
        torch = self._torch
        width = max(len(prompt.ids) + len(reply) for prompt, reply in zip(prompts, replies, strict=True))
        ids = torch.full((len(replies), width), self.pad, dtype=torch.long)
        mask, kinds = torch.zeros_like(ids), torch.zeros_like(ids)
        labels = torch.full_like(ids, IGNORED)
        marks = torch.tensor(self.placeholders, dtype=torch.long)
        for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            start, stop = len(prompt.ids), len(prompt.ids) + len(reply)
            tokens = torch.as_tensor(reply, dtype=torch.long)
            stray = torch.isin(tokens, marks)
            ids[row, :start] = torch.as_tensor(prompt.ids)
            ids[row, start:stop] = tokens.masked_fill(stray, self.pad)
            labels[row, start:stop] = tokens.masked_fill(stray, IGNORED)
            mask[row, :stop] = 1
            kinds[row, :start] = torch.as_tensor(prompt.kinds)
        batch = {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": kinds, "labels": labels}
        return batch | self._pictures(prompts)

    def open(self, prompts: Sequence[EncodedPrompt]) -> Batch:
        """Return the tensors of prompts whose replies are generated, padded on the left."""
        torch = self._torch
        width = max(len(prompt.ids) for prompt in prompts)
        ids = torch.full((len(prompts), width), self.pad, dtype=torch.long)
        mask, kinds = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            start = width - len(prompt.ids)
            ids[row, start:], mask[row, start:] = torch.as_tensor(prompt.ids), 1
            kinds[row, start:] = torch.as_tensor(prompt.kinds)
        return {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": kinds} | self._pictures(prompts)

    def _pictures(self, prompts: Sequence[EncodedPrompt]) -> Batch:
        patches = [each for prompt in prompts for each in prompt.patches]
        if not patches:
            return {}
        grids = [prompt.grids for prompt in prompts if prompt.grids is not None]
        return {"pixel_values": self._torch.cat(patches), "image_grid_thw": self._torch.cat(grids)}


def image_tokens(width: int, height: int, image_processor: Any) -> tuple[int, int]:
    """Return the columns and rows of image tokens of a picture with a given size in pixels.

    The rule of the Qwen families: sides are rounded to whole tokens, the area is scaled into the processor's bounds.
    """
    side = image_processor.patch_size * image_processor.merge_size
    least, most = image_processor.size["shortest_edge"], image_processor.size["longest_edge"]
    wide, high = (max(side, round(each / side) * side) for each in (width, height))
    if wide * high > most:
        scale = sqrt(width * height / most)
        wide, high = (max(side, floor(each / scale / side) * side) for each in (width, height))
    elif wide * high < least:
        scale = sqrt(least / (width * height))
        wide, high = (ceil(each * scale / side) * side for each in (width, height))
    return wide // side, high // side
