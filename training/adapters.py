"""Low-rank adapters (LoRA) of the language model: where they are put, and weights with and without them.

The vision tower has none: vLLM would ignore them without a word.
"""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..identity import derive_seed
from ..models.extras import need
from .encode import EXTRA
from .loading import load_weights
from .policy_rl.sharding import WholeModel
from .policy_rl.vision_cache import Eye

torch: Any = need("torch", EXTRA)

LANGUAGE_LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
"""Names of the layers that have one, as a regular expression."""
_ONLY = "default"
"""What the libraries call the one set of adapters of a model."""


def adapter_config(rank: int, alpha: int) -> Any:
    """Return what the peft library needs to know."""
    return need("peft", EXTRA).LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=LANGUAGE_LAYERS, task_type="CAUSAL_LM"
    )


def add_adapters(model: Any, rank: int, alpha: int, seed: int) -> None:
    """Put adapters on a model, which change nothing yet; from now on they alone are trained, in float32."""
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed("adapters", seed) % 2**63)
        model.add_adapter(adapter_config(rank, alpha), adapter_name=_ONLY)
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.float()


def load_adapters(model: Any, folder: Path) -> None:
    """Give the adapters of a model the values that ``save_pretrained`` of one like it has left in a folder."""
    values = need("safetensors.torch", EXTRA).load_file(str(folder / "adapter_model.safetensors"))
    prefix = "base_model.model."
    named = {name.removeprefix(prefix): value for name, value in values.items()}
    need("peft", EXTRA).set_peft_model_state_dict(model, named, adapter_name=_ONLY)


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Let a model compute with the weights that its run started from."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


class StartOfAdapters(WholeModel):
    """The weights that a run with adapters started from: its model without them."""

    def __init__(self, trained: WholeModel) -> None:
        """Look at the model that is trained."""
        super().__init__(trained.model, trained.ranks)
        self._trained = trained

    def whole(self) -> AbstractContextManager[None]:
        """Let the trained model hold its weights."""
        return self._trained.whole()

    def eye(self) -> Eye:
        """Return an eye that puts the adapters aside."""
        return Eye(self.model, around=partial(without_adapters, self.model))


def merged(model: Any, source: str, revision: str | None) -> Any:
    """Return the model that ``source`` and the adapters of ``model`` make together, on the CPU, in float32."""
    whole, _ = load_weights(source, revision, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return need("peft", EXTRA).PeftModel.from_pretrained(whole, folder).merge_and_unload()
