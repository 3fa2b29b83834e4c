"""A model of 0.17 million weights for small levels: made from scratch and taught by an expert up to a given success.

What all prompts of an environment share is one token each, and so is each piece of a reply; a cell of the picture is
one image token. Matrices are drawn with a deviation of 0.08, because the library's 0.02 starves the pictures.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pivot.tests.models.from_scratch import DEVIATION, FAMILIES, bpe_tokenizer, make_vlm

REPLY = ("<think>", "</think>", "<action>", "</action>", "up", "down", "left", "right")
PATCH = 8
"""Patch size with which one image token covers 16 x 16 pixels, the size of a cell."""
MOST_IMAGE_TOKENS = 64


def make_player(whole: Iterable[str], seed: int = 0, family: str = "qwen2_5_vl") -> tuple[Any, Any]:
    """Return a model of random weights and its processor; each text of ``whole`` is one token."""
    windows = {"fullatt_block_indexes": [0, 1], "window_size": 8 * PATCH} if family == "qwen2_5_vl" else {}
    return make_vlm(
        bpe_tokenizer([], 264, dict.fromkeys((*REPLY, *whole))),
        family=family,
        patch=PATCH,
        most_image_tokens=MOST_IMAGE_TOKENS,
        text={"head_dim": 32},
        vision=windows,
        deviation=DEVIATION,
        seed=seed,
    )


def save_player(folder: Path, whole: Iterable[str], seed: int = 0, family: str = "qwen2_5_vl") -> Path:
    """Save a new player like a real checkpoint."""
    model, processor = make_player(whole, seed, family)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


__all__ = ["FAMILIES", "MOST_IMAGE_TOKENS", "PATCH", "REPLY", "make_player", "save_player"]
