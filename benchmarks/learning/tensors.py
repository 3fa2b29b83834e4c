"""Lessons as tensors on one device: thousands of records per second on a GPU, against the product scorer's hundred.

All records of a layout, which is the sizes of the pictures in a prompt, are one table. The forward pass is that of the
library's own modules, without a loop over pictures; a test compares its log-probabilities with the product's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pivot.benchmarks.learning.lessons import Lesson
from pivot.core.messages import EncodedFrame
from pivot.models.base import image_ids
from pivot.models.extras import need
from pivot.models.transformers.model import picture_of
from pivot.solvers.puzzles import ACTIONS
from pivot.training.encode import Encoder, image_tokens

torch: Any = need("torch", "train")
vision_utils: Any = need("transformers.vision_utils", "train")

Layout = tuple[tuple[int, int], ...]
"""Rows and columns of image tokens of each picture in a prompt."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Records of one layout as arrays."""

    kinds: tuple[str, ...]
    """Kind of each record."""
    ids: NDArray[np.int16]
    """Tokens of prompt and reply, padded on the right; shape (records, tokens)."""
    start: NDArray[np.int64]
    """Place of the first token of the reply; shape (records,)."""
    end: NDArray[np.int64]
    """Place behind its last one; shape (records,)."""
    pictures: NDArray[np.int64]
    """Index of each picture of the prompt; shape (records, pictures)."""
    target: NDArray[np.float32]
    """Probability of each action that is taught; shape (records, 4); zeros where the tokens are."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Records of all layouts, and their pictures at the size in which the model sees them."""

    packed: Mapping[Layout, Packed]
    pictures: Sequence[NDArray[np.uint8]]


def pack(lessons: Iterable[Lesson], pictures: Mapping[str, EncodedFrame], encoder: Encoder) -> Shard:
    """Return lessons as arrays. Prompts of equal texts and picture sizes are encoded once."""
    images = encoder.processor.image_processor
    side = images.patch_size * images.merge_size
    shown: list[NDArray[np.uint8]] = []
    places: dict[str, int] = {}
    encoded: dict[Any, tuple[int, ...]] = {}
    rows: dict[Layout, list[tuple[Lesson, tuple[int, ...], list[int]]]] = {}
    for lesson in lessons:
        messages, names = lesson.row.prompt.messages, image_ids(lesson.row.prompt.messages)
        for name in names:
            if name not in places:
                picture = picture_of(pictures[name])
                columns, lines = image_tokens(*picture.size, images)
                fitted = picture.resize((columns * side, lines * side), Image.Resampling.BICUBIC)
                places[name] = len(shown)
                shown.append(np.asarray(fitted))
        layout = tuple((shown[places[name]].shape[0] // side, shown[places[name]].shape[1] // side) for name in names)
        texts = tuple(part.get("text") for message in messages for part in message["content"])
        if (texts, layout) not in encoded:
            encoded[texts, layout] = encoder.prompt(messages, [picture_of(pictures[name]) for name in names]).ids
        ids = encoded[texts, layout]
        rows.setdefault(layout, []).append((lesson, ids, [places[name] for name in names]))
    return Shard({layout: _table(each, encoder.pad) for layout, each in rows.items()}, shown)


def _table(rows: Sequence[tuple[Lesson, tuple[int, ...], list[int]]], pad: int) -> Packed:
    width = max(len(ids) + len(lesson.row.tokens) for lesson, ids, _ in rows)
    table = np.full((len(rows), width), pad, np.int16)
    for line, (lesson, ids, _) in zip(table, rows, strict=True):
        line[: len(ids) + len(lesson.row.tokens)] = (*ids, *lesson.row.tokens)
    start = np.array([len(ids) for _, ids, _ in rows])
    return Packed(
        tuple(lesson.kind for lesson, _, _ in rows),
        table,
        start,
        start + np.array([len(lesson.row.tokens) for lesson, _, _ in rows]),
        np.array([places for _, _, places in rows]),
        np.array([np.zeros(len(ACTIONS)) if each.target is None else each.target for each, _, _ in rows], np.float32),
    )


def join(shards: Sequence[Shard], pad: int) -> Shard:
    """Return all records of several shards."""
    parts: dict[Layout, list[tuple[Packed, int]]] = {}
    pictures: list[NDArray[np.uint8]] = []
    for shard in shards:
        for layout, packed in shard.packed.items():
            parts.setdefault(layout, []).append((packed, len(pictures)))
        pictures += shard.pictures
    joined: dict[Layout, Packed] = {}
    for layout, tables in parts.items():
        width = max(each.ids.shape[1] for each, _ in tables)
        wide: list[NDArray[np.int16]] = []
        for each, _ in tables:
            padded = np.full((len(each.ids), width), pad, np.int16)
            padded[:, : each.ids.shape[1]] = each.ids
            wide.append(padded)
        joined[layout] = Packed(
            tuple(kind for each, _ in tables for kind in each.kinds),
            np.concatenate(wide),
            np.concatenate([each.start for each, _ in tables]),
            np.concatenate([each.end for each, _ in tables]),
            np.concatenate([each.pictures + shift for each, shift in tables]),
            np.concatenate([each.target for each, _ in tables]),
        )
    return Shard(joined, pictures)


class Table:
    """Records of one layout on a device."""

    def __init__(self, packed: Packed, places: NDArray[np.int64], device: str) -> None:
        """Move ``packed`` to ``device``; ``places`` is the place of each picture among those of its size."""
        kinds = np.array(packed.kinds)
        self.ids = torch.from_numpy(packed.ids.astype(np.int64)).to(device)
        self.start, self.end = (torch.from_numpy(each).to(device) for each in (packed.start, packed.end))
        self.pictures = torch.from_numpy(places[packed.pictures]).to(device)
        self.target = torch.from_numpy(packed.target).to(device)
        self.of = {kind: torch.from_numpy(np.flatnonzero(kinds == kind)).to(device) for kind in dict.fromkeys(kinds)}
        """Indices of the records of each kind."""
        starts, form = np.unique(packed.start, return_inverse=True)
        self.starts = starts.tolist()
        """Different places where a reply starts."""
        self.form = torch.from_numpy(form).to(device)
        """Index of each record's place among them."""
        self.longest = int((packed.end - packed.start).max())


class Tutor:
    """A model and its training records, on one device."""

    def __init__(self, model: Any, encoder: Encoder, shard: Shard, device: str, seed: int = 0) -> None:
        """Move ``shard`` to ``device``, where ``model`` is. All blocks of its vision encoder see the whole picture."""
        self.model, self.device = model, device
        images = encoder.processor.image_processor
        self._patch, self._merge = images.patch_size, images.merge_size
        self._mean, self._std = (torch.tensor(each, device=device) for each in (images.image_mean, images.image_std))
        self._image = model.config.image_token_id
        ids = [encoder.tokenizer.convert_tokens_to_ids(action) for action in ACTIONS]
        self._actions = torch.tensor(ids, device=device)
        self._banned = torch.tensor(encoder.placeholders, device=device)
        self.random = torch.Generator(device).manual_seed(seed)
        side = self._patch * self._merge
        places = np.zeros(len(shard.pictures), np.int64)
        sizes: dict[tuple[int, int], list[NDArray[np.uint8]]] = {}
        for number, picture in enumerate(shard.pictures):
            of_size = sizes.setdefault((picture.shape[0] // side, picture.shape[1] // side), [])
            places[number] = len(of_size)
            of_size.append(picture)
        self._pictures = {size: torch.from_numpy(np.stack(each)).to(device) for size, each in sizes.items()}
        self._at = {size: self._patch_positions(size) for size in sizes}
        self.tables = {layout: Table(packed, places, device) for layout, packed in shard.packed.items()}
        self._positions = {layout: self._token_positions(layout, table) for layout, table in self.tables.items()}

    def loss(self, counts: Mapping[str, int]) -> Any:
        """Return the loss of a random batch: cross entropy with the taught probabilities of actions, or of the tokens.

        Args:
            counts: number of records of each kind.
        """
        taught, words = self._zeros(), self._zeros()
        for layout, table in self.tables.items():
            chosen = [
                of[torch.randint(len(of), (counts[kind],), device=self.device, generator=self.random)]
                for kind, of in table.of.items()
                if counts.get(kind)
            ]
            if not chosen:
                continue
            rows = torch.cat(chosen)
            logprobs, reply, mask = self.scores(layout, rows)
            target = table.target[rows]
            is_action = self._is_action(reply) & mask & (target.sum(1) > 0.5)[:, None]
            cross = -(target[:, None] * logprobs.index_select(-1, self._actions)).sum(-1)
            own = logprobs.gather(2, reply[..., None]).squeeze(2)
            is_word = mask & ~is_action
            taught = taught + torch.stack([cross[is_action].sum(), is_action.sum()])
            words = words + torch.stack([-own[is_word].sum(), is_word.sum()])
        return taught[0] / taught[1].clamp(min=1) + words[0] / words[1].clamp(min=1)

    def _zeros(self) -> Any:
        """Return a sum and a count of nothing."""
        return torch.zeros(2, device=self.device)

    def _is_action(self, tokens: Any) -> Any:
        return (tokens[..., None] == self._actions).any(-1)

    def scores(self, layout: Layout, rows: Any) -> tuple[Any, Any, Any]:
        """Return log-probabilities at each place of a reply, (rows, tokens, vocabulary), its tokens, and its mask."""
        table, positions = self.tables[layout], self._positions[layout]
        ids, start, end = table.ids[rows], table.start[rows], table.end[rows]
        seen = [self._see(size, table.pictures[rows, place]) for place, size in enumerate(layout)]
        embedded = self.model.get_input_embeddings()(ids)
        is_image = ids == self._image
        slots = (is_image.cumsum(1) - 1).clamp(min=0)[..., None].expand(-1, -1, embedded.shape[-1])
        embedded = torch.where(is_image[..., None], torch.cat(seen, 1).gather(1, slots), embedded)
        hidden = self.model.model.language_model(
            inputs_embeds=embedded,
            position_ids=positions[table.form[rows]].transpose(0, 1),
            attention_mask={"full_attention": None},  # causal: what is padded on the right is never looked at
            use_cache=False,
        ).last_hidden_state
        places = start[:, None] + torch.arange(table.longest, device=self.device)
        mask = places < end[:, None]
        places = places.clamp(max=ids.shape[1] - 1)
        before = hidden.gather(1, (places - 1)[..., None].expand(-1, -1, hidden.shape[-1]))
        scores = self.model.get_output_embeddings()(before).float().index_fill(2, self._banned, float("-inf"))
        return scores.log_softmax(-1), ids.gather(1, places), mask

    def _token_positions(self, layout: Layout, table: Table) -> Any:
        """Return the rotary positions of all tokens by the place where the reply starts; (places, 3, tokens)."""
        grids = torch.tensor([[1, rows * self._merge, columns * self._merge] for rows, columns in layout])
        positions_of = []
        for start in table.starts:
            row = table.ids[(table.start == start).nonzero()[0]].cpu()
            kinds = (row == self._image).int()
            positions, _ = self.model.model.get_rope_index(
                row, mm_token_type_ids=kinds, image_grid_thw=grids, attention_mask=torch.ones_like(row)
            )
            positions_of.append(positions[-3:, 0])
        return torch.stack(positions_of).to(self.device)

    def _patch_positions(self, size: tuple[int, int]) -> Any:
        grid = torch.tensor([[1, size[0] * self._merge, size[1] * self._merge]])
        return vision_utils.get_vision_position_ids(grid, self._merge).to(self.device)

    def _patches(self, size: tuple[int, int], which: Any) -> Any:
        """Return the numbers of all patches of some pictures as the processor makes them; (pictures, patches, n)."""
        pixels = (self._pictures[size][which].float() / 255 - self._mean) / self._std
        (rows, columns), merge, patch, count = size, self._merge, self._patch, len(which)
        blocks = pixels.view(count, rows, merge, patch, columns, merge, patch, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
        twice = blocks.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)  # a picture is two equal moments
        return twice.reshape(count, rows * columns * merge**2, -1)

    def _see(self, size: tuple[int, int], which: Any) -> Any:
        """Return the features of some pictures of one size; shape (pictures, image tokens, width)."""
        visual = self.model.model.visual
        patches = self._patches(size, which)
        count, places, _ = patches.shape
        states = visual.patch_embed(patches.flatten(0, 1)).view(count, places, -1)
        cosine, sine = (each[:, None] for each in visual.rotary_pos_emb(states, self._at[size]))
        for block in visual.blocks:
            attention = block.attn
            split = attention.qkv(block.norm1(states)).view(count, places, 3, attention.num_heads, -1)
            query, key, value = split.unbind(2)
            query, key = (each * cosine + _turned(each) * sine for each in (query, key))
            mixed = torch.nn.functional.scaled_dot_product_attention(
                query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
            )
            states = states + attention.proj(mixed.transpose(1, 2).flatten(2))
            states = states + block.mlp(block.norm2(states))
        return visual.merger(states.flatten(0, 1)).view(count, places // self._merge**2, -1)


def _turned(values: Any) -> Any:
    first, second = values.chunk(2, -1)
    return torch.cat([-second, first], -1)
