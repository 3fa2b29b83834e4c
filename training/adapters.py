"""Low-rank adapters (LoRA) of the language model: adding, loading, disabling and merging them.

The vision encoder has none, because vLLM would silently ignore them.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.identity import derive_seed
from ..models.extras import need
from .config import EXTRA
from .loading import load_weights

torch: Any = need("torch", EXTRA)

LANGUAGE_LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""Regular expression of the names of the layers with adapters."""
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
