"""The processor of a vision-language model: chat template, tokenizer and image part, with or without torchvision.

Stock processors of the Qwen families have a video part that needs torchvision, and PyPI's torchvision does not work
with a CPU build of PyTorch. Without torchvision, a subclass with the same interface accepts images and text only; it
also loads directories that were saved with a video part, and saves one for readers that have torchvision. With
torchvision, the stock class is used.
"""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ..extras import need

IMAGE_ONLY_FAMILIES = {
    "qwen2_vl": "Qwen2VLVideoProcessor",
    "qwen2_5_vl": "Qwen2VLVideoProcessor",
    "qwen3_vl": "Qwen3VLVideoProcessor",
    "qwen3_vl_moe": "Qwen3VLVideoProcessor",
}
"""Model types whose processor works without its video part, with the class to use."""
VIDEO_PART = "video_preprocessor_config.json"
"""File of a saved processor that the stock class and vLLM require."""
_PATCHES = ("patch_size", "merge_size", "temporal_patch_size")

_MARKS = ("image", "video", "vision_start", "vision_end")
_TOKENS = {"image": "<|image_pad|>", "video": "<|video_pad|>"}


def has_torchvision() -> bool:
    """Return whether torchvision is installed; one that does not match PyTorch fails with its own error."""
    return find_spec("torchvision") is not None


@cache
def image_text_class(model_type: str) -> Any:
    """Return the stock processor class of a model type without its video part.

    The class has the stock name and saves a video part with the patches of its images, unless the folder has one, so
    that a saved processor names the stock class and loads anywhere.

    Raises:
        PluginError: transformers is not installed.
        ConfigError: the model type has no such processor.
    """
    if model_type not in IMAGE_ONLY_FAMILIES:
        raise ConfigError(
            f"models of type {model_type!r} need torchvision for their processor; install the torchvision that goes "
            f"with your PyTorch, or use one of: {', '.join(IMAGE_ONLY_FAMILIES)}"
        )
    transformers = need("transformers", "transformers")
    auto = need("transformers.models.auto.processing_auto", "transformers")
    name = auto.PROCESSOR_MAPPING_NAMES[model_type]
    stock = getattr(transformers, name)

    def start(
        self: Any, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None, **_: Any
    ) -> None:
        for mark in _MARKS:
            token = getattr(tokenizer, f"{mark}_token", None) or _TOKENS.get(mark, f"<|{mark}|>")
            setattr(self, f"{mark}_token", token)
            setattr(self, f"{mark}_token_id", tokenizer.convert_tokens_to_ids(token))
        transformers.ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    def save(self: Any, save_directory: Any, *args: Any, **fields: Any) -> Any:
        files = stock.save_pretrained(self, save_directory, *args, **fields)
        video = Path(save_directory) / VIDEO_PART
        if not video.exists():
            patches = {size: getattr(self.image_processor, size) for size in _PATCHES}
            part = {"video_processor_type": IMAGE_ONLY_FAMILIES[model_type], **patches}
            video.write_bytes(json.dumps(part).encode())
        return files

    members = {"__init__": start, "save_pretrained": save, "__module__": __name__, "__doc__": "Images and text only."}
    return type(name, (stock,), members)


def load_processor(model: str, model_type: str, revision: str | None = None) -> Any:
    """Load the processor of a model: the stock one with torchvision, else the one for images and text.

    Args:
        model: local directory or hub id.
        model_type: ``config.model_type`` of the model.
        revision: revision of the hub repository; None for its default.

    Raises:
        PluginError: transformers is not installed.
        ConfigError: the directory holds no processor, or this machine cannot use it.
    """
    kind = need("transformers", "transformers").AutoProcessor if has_torchvision() else image_text_class(model_type)
    try:
        return kind.from_pretrained(model, revision=revision)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise ConfigError(f"cannot load the processor of {model}: {error}") from error
