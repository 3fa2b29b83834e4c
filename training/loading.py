"""Weights and processor of the model that a run starts from, the precision that it computes in, and its adapters."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, TrainingError
from ..core.identity import derive_seed
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


def recompute_activations(model: Any) -> None:
    """Let the backward pass of a model recompute activations instead of keeping them."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


# Low-rank adapters (LoRA) of the language model


LANGUAGE_LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""Regular expression of the names of the layers with adapters; the vision encoder has none, because vLLM would silently
ignore them."""
_ONLY = "default"
"""Name of the only set of adapters of a model, as the libraries call it."""


def adapter_config(rank: int, alpha: int) -> Any:
    """Return the config of the peft library."""
    return need("peft", EXTRA).LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=LANGUAGE_LAYERS, task_type="CAUSAL_LM"
    )


def add_adapters(model: Any, rank: int, alpha: int, seed: int) -> None:
    """Add adapters to a model, which change nothing yet; afterwards only they are trained, in float32."""
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed("adapters", seed) % 2**63)
        model.add_adapter(adapter_config(rank, alpha), adapter_name=_ONLY)
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.float()


def load_adapters(model: Any, folder: Path) -> None:
    """Load the adapters of a model from a folder that ``save_pretrained`` wrote."""
    values = need("safetensors.torch", EXTRA).load_file(str(folder / "adapter_model.safetensors"))
    prefix = "base_model.model."
    named = {name.removeprefix(prefix): value for name, value in values.items()}
    need("peft", EXTRA).set_peft_model_state_dict(model, named, adapter_name=_ONLY)


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Disable the adapters within a block, so that the model computes with the weights its run started from."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def merged(model: Any, source: str, revision: str | None) -> Any:
    """Return the model ``source`` with the adapters of ``model`` merged into it, on the CPU, in float32."""
    whole, _ = load_weights(source, revision, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return need("peft", EXTRA).PeftModel.from_pretrained(whole, folder).merge_and_unload()
