"""A tiny random Qwen2.5-VL with a tokenizer trained on the spot, saved like a real one: no weights are downloaded.

About 0.2 million parameters; heads of 32 numbers, the smallest that vLLM serves on a CPU. Without torchvision, its
processor is the product's own for images and text.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pivot.models.transformers.processors import image_text_class

pytest.importorskip("torch", reason="needs PyTorch; run: make test-train")

# Type checkers run without PyTorch.
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

NAMES = ["endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"]
SPECIAL = [f"<|{name}|>" for name in NAMES]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PATCH, MERGE = 14, 2
MAX_PIXELS = (PATCH * MERGE) ** 2 * 100
"""At most a hundred image tokens a picture."""


def make_tokenizer(texts: Iterable[str], whole: Iterable[str] = ()) -> Any:
    """Train a byte-level BPE with Qwen's special tokens; each text in ``whole`` is one token, for short records."""
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=SPECIAL[1:]
    )
    made.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in whole])
    return made


def save_tiny_vlm(folder: Path, texts: Iterable[str], whole: Iterable[str] = ()) -> None:
    """Save model, tokenizer and processor to ``folder``; see :func:`make_tokenizer` for ``whole``."""
    tokenizer = make_tokenizer(texts, whole)
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start")}
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
        },
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    transformers.set_seed(0)
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": (PATCH * MERGE) ** 2, "longest_edge": MAX_PIXELS}
    )
    processor = image_text_class("qwen2_5_vl")
    processor(images, tokenizer, chat_template=CHAT_TEMPLATE).save_pretrained(folder)
    # Real checkpoints have a video part, and vLLM looks for it.
    video = {"video_processor_type": "Qwen2VLVideoProcessor", "patch_size": PATCH, "merge_size": MERGE}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(video), encoding="utf-8")
