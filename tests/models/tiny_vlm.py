"""A tiny random Qwen2.5-VL with a tokenizer trained on the spot, saved like a real one.

About 0.2 million parameters; heads of 32 numbers, the smallest that vLLM serves on a CPU.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("transformers")

from pivot.models.transformers.from_scratch import bpe_tokenizer, make_vlm

PATCH = 14


def save_tiny_vlm(
    folder: Path, texts: Iterable[str], whole: Iterable[str] = (), deviation: float | None = None
) -> None:
    """Save model, tokenizer and processor to ``folder``; each text of ``whole`` is one token."""
    model, processor = make_vlm(bpe_tokenizer(texts, 600, whole), patch=PATCH, deviation=deviation)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
