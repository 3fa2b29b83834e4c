"""Estimate of the memory that a run needs: ``pivot train sft --dry-run`` and ``pivot train rl --dry-run``.

Weights, gradients and AdamW's two moments are counted exactly, on a model without storage. Activations are estimated
from the shapes: all values that the layers keep for the backward pass, or, when activations are recomputed, those of
one layer and the inputs of the others. The optimiser is fused on a GPU: it needs no further memory while it steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..core.errors import TrainingError
from ..models.extras import need
from ..models.weights import is_local
from .analyzer_sft.config import SftConfig
from .config import Shape
from .loading import adapter_config, uses_bf16
from .policy_rl.config import RlConfig
from .policy_rl.weights import CACHE_BYTES

torch: Any = need("torch", "train")
transformers: Any = need("transformers", "train")

FULL, HALF = 4, 2
"""Bytes of a number in float32 and bfloat16."""
PICTURE_SHARE = 0.5
"""Share of image tokens in a record; each stands for four patches in the vision encoder."""
SCORED_AT_ONCE = 1024
"""Tokens whose log-probabilities are computed together."""
OVERHEAD = 1 << 30
"""Bytes of the libraries, and of gaps between tensors."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Memory of one process in bytes, by part."""

    parameters: int
    trained: int
    parts: dict[str, int]

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(self.parts.values())


PROMPT = 2048
"""Tokens of a prompt with its picture, in front of replies that are generated."""


def estimate(config: SftConfig) -> Estimate:
    """Estimate the memory of one process of a run of Stage I; weights are not loaded.

    Raises:
        TrainingError: the model's config cannot be read, and the recipe has no shape.
    """
    settings = model_settings(config)
    return _estimate(config, settings, config.micro_batch * config.max_length, {})


def estimate_rl(config: RlConfig) -> Estimate:
    """Estimate the memory of one process of a run of Stage II; weights are not loaded.

    Raises:
        TrainingError: the config of a model cannot be read, and the recipe has no shape.
    """
    settings = model_settings(config)
    count, text = _parameters(_empty_model(settings)), settings.get_text_config()
    width = HALF if uses_bf16(config.precision) else FULL
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    per_token = 2 * text.num_hidden_layers * text.num_key_value_heads * head * width
    more: dict[str, int] = {}
    if not config.lora and (config.kl > 0 or config.teacher_weights == "start"):
        more["reference"] = count * FULL
    if not config.lora and config.teacher_weights == "ema":
        more["teacher"] = count * FULL
    if config.teacher_model is not None:
        named = {"model": config.teacher_model, "revision": config.teacher_revision, "shape": None}
        other = config.model_copy(update=named)
        more["teacher"] = _parameters(_empty_model(model_settings(other))) * width
    more["picture features"] = (1 + len(more)) * CACHE_BYTES  # of each set of weights with a vision encoder of its own
    if config.engine == "in-process":
        longest = PROMPT + max(config.max_tokens, config.analyzer_tokens)
        more["generation, keys and values"] = config.generate * longest * per_token
    return _estimate(config, settings, config.micro_batch_tokens, more)


@contextmanager
def within_memory(config: SftConfig | RlConfig) -> Iterator[None]:
    """Report that the GPU has too little memory for a run, with the settings to lower.

    Raises:
        TrainingError: the block runs out of memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        if isinstance(config, RlConfig):
            lower = f"lower --micro-batch-tokens (now {config.micro_batch_tokens}) and run again with --resume"
        else:
            lower = f"lower --micro-batch (now {config.micro_batch}) and run again with --resume"
        flags = {"--gradient-checkpointing": config.gradient_checkpointing, "--lora": config.lora}
        others = "".join(f", or begin another run with {flag}" for flag, chosen in flags.items() if not chosen)
        raise TrainingError(
            f"the memory of the GPU is too small: found {str(error).splitlines()[0]} Expected what --dry-run "
            f"estimates; {lower}{others}"
        ) from error


def _empty_model(settings: Any) -> Any:
    with torch.device("meta"):
        return transformers.AutoModelForImageTextToText.from_config(settings)


def _parameters(model: Any) -> int:
    return sum(each.numel() for each in model.parameters())


def _estimate(config: SftConfig | RlConfig, settings: Any, tokens: int, more: Mapping[str, int]) -> Estimate:
    """Return the estimate of a run that differentiates ``tokens`` at a time and holds ``more`` parts, in bytes."""
    model = _empty_model(settings)
    trained = parameters = _parameters(model)
    if config.lora:
        with torch.device("meta"):
            model.add_adapter(adapter_config(config.lora_rank, config.lora_alpha))
        trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    width = HALF if uses_bf16(config.precision) else FULL
    frozen = parameters * (width if config.lora else FULL) + (trained * FULL if config.lora else 0)
    text, vision = settings.get_text_config(), settings.vision_config
    patches = round(PICTURE_SHARE * tokens) * getattr(vision, "spatial_merge_size", 2) ** 2
    vision_layers, recomputed = (
        getattr(vision, "depth", None) or vision.num_hidden_layers,
        config.gradient_checkpointing,
    )
    parts = {
        "weights": frozen,
        "gradients": trained * FULL,
        "optimizer": trained * 2 * FULL,
        **more,
        "activations, language": _activations(tokens, text, text.num_hidden_layers, width, recomputed),
        "activations, vision": _activations(patches, vision, vision_layers, width, recomputed),
        "log-probabilities": 3 * min(tokens, SCORED_AT_ONCE) * text.vocab_size * FULL,
        "libraries": OVERHEAD,
    }
    return Estimate(parameters, trained, parts)


def _activations(tokens: int, sizes: Any, layers: int, width: int, recomputed: bool) -> int:
    """Return the bytes that layers keep per token: 12 hidden sizes (norms, attention, residuals), 4 inner sizes."""
    one = tokens * (12 * sizes.hidden_size + 4 * sizes.intermediate_size) * width
    return layers * tokens * sizes.hidden_size * width + one if recomputed else layers * one


def model_settings(config: SftConfig | RlConfig) -> Any:
    """Return the config of the model, or one made from the recipe's shape if the model is not on this machine.

    Raises:
        TrainingError: the config cannot be read, and the recipe has no shape.
    """
    if config.shape is not None and not is_local(config.model):
        return settings_of(config.shape)
    try:
        return transformers.AutoConfig.from_pretrained(config.model, revision=config.revision)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(
            f"cannot read the config of {config.model} ({reason}), expected a folder, or a hub id that this machine "
            "can reach; a recipe with a shape (qwen2.5-vl-3b, qwen3-vl-2b) can be estimated without"
        ) from error


def settings_of(shape: Shape) -> Any:
    """Return the config of a model with a given shape."""
    kind = transformers.AutoConfig.for_model(shape.model_type)
    return type(kind)(
        text_config=dict(shape.text), vision_config=dict(shape.vision), tie_word_embeddings=shape.tie_word_embeddings
    )
