"""Weights and processor of the model that a run starts from, and the precision that it computes in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import ConfigError, TrainingError
from ..models.extras import need
from ..models.transformers.processors import load_processor
from ..models.weights import is_local
from .config import EXTRA, Precision

torch: Any = need("torch", EXTRA)
transformers: Any = need("transformers", EXTRA)
transformers.utils.logging.disable_progress_bar()  # each bar of loading and saving would be a line in the log


def uses_bf16(precision: Precision) -> bool:
    """Whether a run computes in bfloat16: ``auto`` does on a GPU."""
    return precision == "bf16" or (precision == "auto" and torch.cuda.is_available())


def load_weights(model: str, revision: str | None, dtype: Any) -> tuple[Any, Any]:
    """Load the weights of a model, in precision ``dtype``, and its processor.

    Raises:
        TrainingError: the model does not exist, or is of an unsupported kind.
    """
    on_hub = None if is_local(model) else revision
    with _refuse(model):
        processor = _processor(model, on_hub)
        return transformers.AutoModelForImageTextToText.from_pretrained(model, revision=on_hub, dtype=dtype), processor


def processor_of(model: str, revision: str | None) -> Any:
    """Load the processor of a model without its weights.

    Raises:
        TrainingError: the model does not exist, or is of an unsupported kind.
    """
    with _refuse(model):
        return _processor(model, None if is_local(model) else revision)


def _processor(model: str, revision: str | None) -> Any:
    settings = transformers.AutoConfig.from_pretrained(model, revision=revision)
    return load_processor(model, settings.model_type, revision)


@contextmanager
def _refuse(model: str) -> Iterator[None]:
    """Report that a model cannot be loaded."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, ConfigError) as error:
        reason = str(error).splitlines()[0]
        raise TrainingError(
            f"cannot load model {model} ({reason}); expected a save_pretrained folder of a Qwen2.5-VL or "
            "Qwen3-VL, or a hub id that this machine can reach or has in its cache"
        ) from error
