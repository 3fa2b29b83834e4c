"""A model of 0.17 million weights that plays small levels: made from scratch, and taught by an expert as far as wanted.

What all prompts of an environment share is one token each, and so is each piece of a reply; a cell of the picture is
one image token. Matrices are drawn with a deviation of 0.08, because the library's 0.02 starves the pictures.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pivot.models.extras import need
from pivot.models.transformers.processors import image_text_class

# Type checkers run without PyTorch.
torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")
tokenizers: Any = need("tokenizers", "train")

NAMES = ["endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REPLY = ("<think>", "</think>", "<action>", "</action>", "up", "down", "left", "right")
PATCH, MERGE = 8, 2
"""One image token is 16 x 16 pixels, as large as a cell."""
MOST_IMAGE_TOKENS = 64
DEVIATION = 0.08
FAMILIES = ("qwen2_5_vl", "qwen3_vl")


def make_tokenizer(whole: Iterable[str]) -> Any:
    """Return a tokenizer of bytes with Qwen's special tokens; each text of ``whole`` is one token, too."""
    special = [f"<|{name}|>" for name in NAMES]
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    level = tokenizers.pre_tokenizers.ByteLevel
    bpe.pre_tokenizer, bpe.decoder = level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=264, special_tokens=special, initial_alphabet=level.alphabet(), show_progress=False
    )
    bpe.train_from_iterator([], trainer)
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=special[1:]
    )
    made.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in dict.fromkeys((*REPLY, *whole))])
    return made


def make_player(whole: Iterable[str], seed: int = 0, family: str = "qwen2_5_vl") -> tuple[Any, Any]:
    """Return a model of random weights and its processor."""
    tokenizer = make_tokenizer(whole)
    token = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in NAMES}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "out_hidden_size": 64,
    }
    if family == "qwen2_5_vl":
        kind, made = transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration
        vision |= {"fullatt_block_indexes": [0, 1], "window_size": 8 * PATCH}
    else:
        kind, made = transformers.Qwen3VLConfig, transformers.Qwen3VLForConditionalGeneration
        vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 256}
        text["rope_parameters"]["mrope_interleaved"] = True
    config = kind(
        text_config=text,
        vision_config=vision,
        image_token_id=token["image_pad"],
        video_token_id=token["video_pad"],
        vision_start_token_id=token["vision_start"],
        vision_end_token_id=token["vision_end"],
        tie_word_embeddings=True,
    )
    transformers.set_seed(seed)
    model = made(config)
    for weights in model.parameters():
        if weights.dim() >= 2:
            torch.nn.init.normal_(weights, std=DEVIATION)
    side = PATCH * MERGE
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": side**2, "longest_edge": side**2 * MOST_IMAGE_TOKENS}
    )
    return model, image_text_class(family)(images, tokenizer, chat_template=CHAT_TEMPLATE)


def save_player(folder: Path, whole: Iterable[str], seed: int = 0, family: str = "qwen2_5_vl") -> Path:
    """Save a new player like a real checkpoint."""
    model, processor = make_player(whole, seed, family)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
