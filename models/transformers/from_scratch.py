"""Small Qwen-VL models of random weights, with a tokenizer that is trained on given texts: nothing is downloaded.

Without torchvision, the processor is PIVOT's own for images and text.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..extras import need
from .processors import image_text_class

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")
tokenizers: Any = need("tokenizers", "train")

NAMES = ["endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad"]
SPECIAL = [f"<|{name}|>" for name in NAMES]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGE = 2
"""Patches along each side of an image token."""
DEVIATION = 0.08
"""Standard deviation of the matrices of a model that learns from pictures: the library's 0.02 starves them."""
FAMILIES = ("qwen2_5_vl", "qwen3_vl")


def bpe_tokenizer(texts: Iterable[str], size: int, whole: Iterable[str] = (), split: Any = None) -> Any:
    """Train a byte-level BPE with Qwen's special tokens.

    Args:
        texts: texts that decide its merges.
        size: size of the vocabulary, without ``whole``.
        whole: texts that are one token each, for short records.
        split: a pre-tokenizer in place of the usual one.
    """
    level = tokenizers.pre_tokenizers.ByteLevel
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = level(add_prefix_space=False) if split is None else split
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=level.alphabet(), show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    ends = dict(zip(("pad_token", "eos_token"), (SPECIAL[0], SPECIAL[2]), strict=True))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, extra_special_tokens=SPECIAL[1:], **ends)
    made.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in whole])
    return made


def make_vlm(
    tokenizer: Any,
    *,
    family: str = "qwen2_5_vl",
    patch: int = 14,
    most_image_tokens: int = 100,
    text: Mapping[str, Any] | None = None,
    vision: Mapping[str, Any] | None = None,
    deviation: float | None = None,
    seed: int = 0,
) -> tuple[Any, Any]:
    """Return a model of some hundred thousand random weights and its processor.

    Args:
        tokenizer: tokenizer of :func:`bpe_tokenizer`.
        family: one of :data:`FAMILIES`.
        patch: side of a patch in pixels.
        most_image_tokens: largest number of tokens of a picture; a larger picture is scaled down.
        text: settings of the language model that differ from those below.
        vision: settings of the vision encoder that differ from those below.
        deviation: standard deviation of all matrices; None for the library's own.
        seed: seed of the weights.
    """
    token = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in NAMES}
    language = {
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
    } | dict(text or {})
    tower = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": patch,
        "spatial_merge_size": MERGE,
        "out_hidden_size": language["hidden_size"],
    } | dict(vision or {})
    if family == "qwen2_5_vl":
        kind, architecture = transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration
        tower = {"fullatt_block_indexes": [1]} | tower
    else:
        kind, architecture = transformers.Qwen3VLConfig, transformers.Qwen3VLForConditionalGeneration
        tower = {"deepstack_visual_indexes": [0], "num_position_embeddings": 256} | tower
        rope = {**language["rope_parameters"], "mrope_interleaved": True}
        language = {"head_dim": 32} | language | {"rope_parameters": rope}
    config = kind(
        text_config=language,
        vision_config=tower,
        image_token_id=token["image_pad"],
        video_token_id=token["video_pad"],
        vision_start_token_id=token["vision_start"],
        vision_end_token_id=token["vision_end"],
        tie_word_embeddings=True,
    )
    transformers.set_seed(seed)
    model = architecture(config)
    for weights in model.parameters() if deviation is not None else ():
        if weights.dim() >= 2:
            torch.nn.init.normal_(weights, std=deviation)
    side = patch * MERGE
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=MERGE, size={"shortest_edge": side**2, "longest_edge": side**2 * most_image_tokens}
    )
    return model, image_text_class(family)(images, tokenizer, chat_template=CHAT_TEMPLATE)
