"""From chat messages, a picture and a reply to the tensors of a batch; Stage I and Stage II encode alike.

The prompt goes through the processor's own chat template and picture code, exactly as when the model is asked
(:mod:`pivot.models.transformers`); the reply is appended to it as tokens, ended by the token that ends a turn. Only the
reply and its end token are supervised. Rows are padded on the right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Any

from PIL import Image

from ..errors import TrainingError
from ..messages import bare_messages
from ..models.extras import need

EXTRA = "train"
IGNORED = -100
"""Label of a token that is not supervised."""

Batch = dict[str, Any]
"""``input_ids``, ``attention_mask``, ``mm_token_type_ids``, ``labels``: (records, tokens); ``pixel_values``: (patches,
numbers); ``image_grid_thw``: (pictures, 3)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A prompt with its pictures and the tokens that shall follow it."""

    prompt: Sequence[Mapping[str, Any]]
    pictures: Sequence[Image.Image]
    tokens: Sequence[int]
    """The end token included."""


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the model reads it."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...]
    """Of each token: text or picture, as the model's positions need it."""
    pixels: Any
    """Of all its pictures, shape (patches, numbers); None without any."""
    grids: Any
    """Patches of each picture, shape (pictures, 3); None without any."""

    @property
    def bytes(self) -> int:
        """Memory of its pixels, and a little for its tokens."""
        return 16 * len(self.ids) + (0 if self.pixels is None else self.pixels.nbytes)


class Encoder:
    """The processor of a model, as training uses it."""

    def __init__(self, processor: Any) -> None:
        """Wrap a processor.

        Raises:
            TrainingError: its chat template does not end a turn with the tokenizer's end token.
        """
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self._torch = need("torch", EXTRA)
        self.end = self._end_token()
        pad = self.tokenizer.pad_token_id
        self.pad: int = self.end if pad is None else pad

    def _end_token(self) -> int:
        """Return the token that ends a reply: the first one after it in the chat template."""
        asked = [{"role": "user", "content": [{"type": "text", "text": "question"}]}]
        answered = [*asked, {"role": "assistant", "content": [{"type": "text", "text": "answer"}]}]
        shown = self.processor.apply_chat_template(answered, tokenize=False)
        opening = self.processor.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        rest = shown.removeprefix(opening + "answer")
        after = self.tokenizer(rest, add_special_tokens=False)["input_ids"] if rest != shown else []
        if not after or after[0] != self.tokenizer.eos_token_id:
            raise TrainingError(
                f"the chat template puts {rest[:40]!r} after a reply, expected {self.tokenizer.eos_token!r}, the "
                "tokenizer's end token; train a model whose template ends a turn with it, such as Qwen2.5-VL-Instruct"
            )
        return after[0]

    def special_tokens(self) -> frozenset[int]:
        """Return the tokens that no text of a record may hold: those that stand for pictures or end turns."""
        return frozenset(self.tokenizer.all_special_ids) | set(self.placeholders)

    def reply_tokens(self, text: str) -> list[int]:
        """Return the tokens of a reply, its end token included."""
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end]

    def prompt_text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt as the model reads it, up to where its reply begins."""
        return self.processor.apply_chat_template(bare_messages(messages), tokenize=False, add_generation_prompt=True)

    @property
    def placeholders(self) -> tuple[int, ...]:
        """The tokens that stand for pictures: a prompt holds them, a reply must not."""
        names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        marks = (getattr(self.processor, name, None) for name in names)
        return tuple(sorted({each for each in marks if isinstance(each, int)}))

    def prompt(self, messages: Sequence[Mapping[str, Any]], pictures: Sequence[Image.Image]) -> EncodedPrompt:
        """Return a prompt with its pictures as the model reads it, up to where its reply begins."""
        text, shown = self.prompt_text(messages), list(pictures)
        made = self.processor(text=[text], images=[shown] if shown else None, add_special_tokens=False)
        torch = self._torch
        return EncodedPrompt(
            tuple(made["input_ids"][0]),
            tuple(made["mm_token_type_ids"][0]),
            torch.as_tensor(made["pixel_values"]) if shown else None,
            torch.as_tensor(made["image_grid_thw"]) if shown else None,
        )

    def batch(self, replies: Sequence[Reply]) -> Batch:
        """Return the tensors of some replies; nothing is cut."""
        prompts = [self.prompt(reply.prompt, reply.pictures) for reply in replies]
        return self.join(prompts, [reply.tokens for reply in replies])

    def join(self, prompts: Sequence[EncodedPrompt], replies: Sequence[Sequence[int]]) -> Batch:
        """Return the tensors of prompts followed by replies, one row each.

        A placeholder of a picture that stands in a reply would be taken for one of a picture that is not there: the
        model is shown the padding token in its place, which is not supervised.
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
        pixels = [prompt.pixels for prompt in prompts if prompt.pixels is not None]
        if pixels:
            batch["pixel_values"] = torch.cat(pixels)
            batch["image_grid_thw"] = torch.cat([prompt.grids for prompt in prompts if prompt.grids is not None])
        return batch


def image_tokens(width: int, height: int, image_processor: Any) -> tuple[int, int]:
    """Return the columns and rows of image tokens that a picture takes, from its size alone.

    The rule of the Qwen families: sides rounded to whole tokens, the area brought within the processor's bounds.
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
