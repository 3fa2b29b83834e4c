"""The tiny model that the package makes itself: loadable, byte-level, reproducible, taught the format of replies."""

from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import TrainingError
from pivot.tests.cli.command_line import run as command

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
transformers: Any = pytest.importorskip("transformers")

from pivot.models.transformers.processors import load_processor  # noqa: E402 - after the skips
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.records import open_records  # noqa: E402
from pivot.training.tiny_model import COLUMNS, REPLY  # noqa: E402

pytestmark = pytest.mark.train


def test_the_command_makes_a_model_that_reads_a_store_in_few_tokens(small_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    shown = command("make-tiny-model", out, "--data", small_store, "--lessons", "25")
    assert "M parameters" in shown and f"pivot train sft {small_store} --recipe tiny" in shown
    model = transformers.AutoModelForImageTextToText.from_pretrained(out)
    assert sum(each.numel() for each in model.parameters()) < 1e6
    assert {"config.json", "model.safetensors", "tokenizer.json", "video_preprocessor_config.json"} <= {
        path.name for path in out.iterdir()
    }
    encoder = Encoder(load_processor(str(out), "qwen2_5_vl"))
    for text in ("Ünïcode ☃ \t  two  spaces", *REPLY, '{"pivot_step": 3, "failure_mode": "timeout"}'):
        tokens = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert encoder.tokenizer.decode(tokens) == text, "a byte-level BPE loses nothing"
    lengths = [
        len(encoder.tokenizer(part["text"])["input_ids"])
        for row in open_records(str(small_store)).rows("train", COLUMNS)
        for part in row["prompt"][0]["content"]
        if part["type"] == "text"
    ]
    assert max(lengths) < 700
    with pytest.raises(TrainingError, match="is not empty, expected a new folder"):
        pivot.make_tiny_model(out, small_store)


def test_lessons_teach_and_a_seed_decides_the_weights(small_store: Path, tmp_path: Path) -> None:
    made = [
        pivot.make_tiny_model(tmp_path / name, small_store, seed=seed, lessons=lessons)
        for name, seed, lessons in (("a", 0, 1), ("b", 0, 1), ("c", 1, 1), ("taught", 0, 30))
    ]
    first, taught = made[0].loss, made[3].loss
    assert first is not None and taught is not None and taught < first / 2
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b", "c")]
    assert weights[0] == weights[1] != weights[2]


OPENING = """{% for message in messages %}<|im_start|>{{ message.role }}
{% for part in message.content %}{{ part.text }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
"""A template that opens a thought in the prompt and leaves thoughts out of the history."""


def test_a_template_may_open_the_thought(small_store: Path, tmp_path: Path) -> None:
    pivot.make_tiny_model(tmp_path / "tiny", small_store, lessons=1)
    processor = load_processor(str(tmp_path / "tiny"), "qwen2_5_vl")
    closed = Encoder(processor)
    processor.chat_template = OPENING
    opened = Encoder(processor)
    assert (closed.opens_thought, opened.opens_thought, closed.end) == (False, True, opened.end)
    for reply, supervised in {
        "<think>go</think><action>up</action>": "go</think><action>up</action>",
        "go</think><action>up</action>": "go</think><action>up</action>",
        '{"pivot_step": 3}': '</think>\n\n{"pivot_step": 3}',
    }.items():
        *tokens, end = opened.reply_tokens(reply)
        assert (opened.tokenizer.decode(tokens), end) == (supervised, opened.end)
        assert closed.tokenizer.decode(closed.reply_tokens(reply)[:-1]) == reply
