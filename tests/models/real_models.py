"""Helpers of the tests of real models: a tiny model on disk, and checks of its stores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pivot.core import plugins
from pivot.core.images import decode, encode_png, frame_id
from pivot.core.messages import EncodedFrame
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.datasets.store.nights import load_store
from pivot.datasets.verify.verify import verify_store
from pivot.models.base import ChatRequest, Sampling, image_ids
from pivot.models.transformers.model import Engine
from pivot.models.transformers.processors import load_processor
from pivot.tests.models.tiny_vlm import save_tiny_vlm
from pivot.training.checkpoint import FINAL, further_files, save_final

torch = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
transformers = pytest.importorskip("transformers")

ENVIRONMENTS = ("sokoban", "frozenlake")


def save_model(folder: Path) -> Path:
    """Save a tiny model whose tokenizer is trained on prompts like ours."""
    texts = [plugins.load("environments", name).profile.task_description for name in ENVIRONMENTS]
    texts += ["<think>The box is left of the target.</think><action>right</action>", "step 3: action=up moved=true"]
    save_tiny_vlm(folder, texts * 10)
    return folder


def trained(source: Path, run: Path) -> Path:
    """Return the folder of `pivot train sft` for a model without any update."""
    config = transformers.AutoConfig.from_pretrained(source)
    model = transformers.AutoModelForImageTextToText.from_pretrained(source)
    processor = load_processor(str(source), config.model_type)
    save_final(LocalStorage(run), model, processor, "# An Analyzer\n", further_files(str(source)))
    return run / FINAL


def request_of(
    number: int = 0,
    text: str = "Where is the box?",
    seed: int | None = None,
    json_schema: dict[str, Any] | None = None,
    **sampling: Any,
) -> ChatRequest:
    """A request with a picture of noise."""
    pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
    frame = EncodedFrame(frame_id(pixels), 96, 96, "png", encode_png(pixels))
    parts = [{"type": "text", "text": text}, {"type": "image", "frame_id": frame.frame_id}]
    return ChatRequest(
        request_id=f"request-{number}",
        episode_id="episode",
        t=0,
        role="student",
        messages=[{"role": "user", "content": parts}],
        images={frame.frame_id: frame},
        prompt_hash=f"{number}{text}",
        sampling=replace(Sampling(max_tokens=24), **sampling),
        seed=1000 + number if seed is None else seed,
        json_schema=json_schema,
        wants_logprobs=True,
    )


def recomputed(engine: Engine, request: ChatRequest, token_ids: list[int]) -> list[float]:
    """Log-probabilities of a reply by one plain forward pass over prompt and reply."""
    text, pictures = engine._prompt(request)
    inputs = engine.processor(text=[text], images=pictures or None, return_tensors="pt")
    reply = torch.tensor([token_ids])
    start = inputs["input_ids"].shape[1]
    inputs["input_ids"] = torch.cat([inputs["input_ids"], reply], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(reply)], dim=1)
    with torch.no_grad():
        scores = engine._model(**inputs).logits[0, start - 1 : -1].log_softmax(dim=-1)
    return scores.gather(1, reply[0][:, None])[:, 0].tolist()


def names_a_picture(engine: Engine, token_ids: Any) -> bool:
    """Whether a random model said the token that stands for a piece of picture.

    A forward pass over prompt and reply would look for the picture behind it; generation never does.
    """
    return bool({engine.processor.image_token_id, engine.processor.video_token_id} & set(token_ids))


def stored_request(row: dict[str, Any], messages: str, frames: dict[str, bytes]) -> ChatRequest:
    """The request that made a stored step."""
    shown = json.loads(messages)
    images = {}
    for key in image_ids(shown):
        height, width = decode(frames[key]).shape[:2]
        images[key] = EncodedFrame(key, width, height, "png", frames[key])
    return ChatRequest("x", row["episode_id"], row["t"], "student", shown, images, row["prompt_hash"], Sampling(), 0)


def largest_difference(root: Path, engine: Engine, steps: int = 40) -> float:
    """Return the largest difference between stored log-probabilities and those of transformers."""
    store = load_store(root)
    frames = dict(store.frames.select("frame_id", "image").collect().iter_rows())
    prompts = dict(store.prompts.select("prompt_hash", "messages").collect().iter_rows())
    rows = store.steps.collect().sample(steps, seed=0).to_dicts()
    rows = [row for row in rows if not names_a_picture(engine, row["response_token_ids"])]
    assert len(rows) > steps / 2
    worst = 0.0
    for row in rows:
        expected = recomputed(
            engine, stored_request(row, prompts[row["prompt_hash"]], frames), row["response_token_ids"]
        )
        worst = max(worst, *[abs(a - b) for a, b in zip(expected, row["response_logprobs"], strict=True)])
    return worst


def assert_right_records(root: Path, tokenizer: Any = None) -> pl.DataFrame:
    """Check that random replies made valid records and right labels; return the labels."""
    assert verify_store(root, Reporter()).problems == []
    store = load_store(root)
    episodes, steps, labels = store.episodes.collect(), store.steps.collect(), store.labels.collect()
    assert set(episodes["status"]) == {"complete"}
    assert max(map(len, steps["response"])) > 10
    assert steps["response_token_ids"].null_count() == steps["response_logprobs"].null_count() == 0
    assert steps["response_token_ids"].list.len().equals(steps["response_logprobs"].list.len())
    assert max(map(max, steps["response_logprobs"])) <= 1e-6
    # A random model ends few replies; the others were cut at the limit.
    assert set(steps["finish_reason"]) <= {"stop", "length"} and "length" in set(steps["finish_reason"])
    if tokenizer is not None:
        for row in steps.to_dicts():
            assert readable(tokenizer, row["response_token_ids"]) == row["response"].replace("\ufffd", "")
    assert labels.height == episodes["failed"].sum() > 0 and labels["pivot_step"].null_count() == 0
    assert store.calls.collect().filter(pl.col("role") == "student").height == steps.height
    return labels


def readable(tokenizer: Any, token_ids: Any) -> str:
    """Return the text of tokens without incomplete characters, which streaming engines leave out."""
    return tokenizer.decode(token_ids, skip_special_tokens=True).replace("\ufffd", "")
