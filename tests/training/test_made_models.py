"""The tiny model that the package makes itself: loadable, byte-level, reproducible, taught the format of replies."""

from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import TrainingError
from pivot.core.messages import THOUGHT_MARKS, PromptMessages
from pivot.tests.cli.command_line import run as command
from pivot.tests.models.thinking import ACTION, FAMILIES

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
transformers: Any = pytest.importorskip("transformers")

from pivot.models.transformers.processors import load_processor  # noqa: E402 - after the skips
from pivot.models.transformers.sampling import SeededSampler  # noqa: E402
from pivot.training.encode import IGNORED, Encoder, Reply  # noqa: E402
from pivot.training.made_models import COLUMNS, REPLY  # noqa: E402
from pivot.training.policy_rl.hindsight.analysis import thinking_tokens  # noqa: E402
from pivot.training.policy_rl.hindsight.corrections import corrected_reply  # noqa: E402
from pivot.training.policy_rl.scoring import Row, Scorer  # noqa: E402
from pivot.training.records import open_records  # noqa: E402

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def tiny(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of seed 0 after one lesson."""
    out = tmp_path_factory.mktemp("made") / "tiny"
    assert pivot.make_model("tiny", out, small_store, lessons=1).loss is not None
    return out


def test_the_command_makes_a_model_that_reads_a_store_in_few_tokens(small_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    shown = command("make-model", "tiny", out, "--data", small_store, "--lessons", "1")
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
        pivot.make_model("tiny", out, small_store)


def test_lessons_teach_and_a_seed_decides_the_weights(tiny: Path, small_store: Path, tmp_path: Path) -> None:
    """Catch lessons without effect, and weights that depend on more than the seed."""
    first, _, taught = (
        pivot.make_model("tiny", tmp_path / name, small_store, seed=seed, lessons=lessons).loss
        for name, seed, lessons in (("again", 0, 1), ("other", 1, 1), ("taught", 0, 20))
    )
    assert first is not None and taught is not None and taught < first / 2
    folders = (tiny, tmp_path / "again", tmp_path / "other")
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1] != weights[2]


TARGET = '{"pivot_step": 3}'
HISTORY = """{% for message in messages %}<|im_start|>{{ message.role }}
{% for part in message.content %}{{ part.text }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}PROMPT_END{% endif %}"""
"""A template whose last line is that of a family."""


def test_templates_of_thinking_models(tiny: Path) -> None:
    """The supervised part of a reply, of a target without a thought, and the thought that a correction keeps."""
    processor = load_processor(str(tiny), "qwen2_5_vl")
    for name, family in FAMILIES.items():
        processor.chat_template = HISTORY.replace("PROMPT_END", family.prompt_end)
        encoder = Encoder(processor)
        decode = encoder.tokenizer.decode
        *tokens, end = encoder.reply_tokens(f"<think>go</think>{ACTION}")
        assert (name, decode(tokens), end) == (name, family.supervised, encoder.end)
        question = [{"role": "user", "content": [{"type": "text", "text": "Now?"}]}]
        batch = encoder.batch([Reply(question, [], [*tokens, end])])
        ids, labels = (batch[key][0].tolist() for key in ("input_ids", "labels"))
        start = len(ids) - len(tokens) - 1
        assert labels == [IGNORED] * start + [*tokens, end]
        assert decode(ids[:start]).endswith(family.prompt_end)
        closing = family.supervised.partition("go")[2].removesuffix(ACTION)
        begun = "" if family.supervised.startswith("<") else f"{closing}\n\n"
        assert decode(encoder.reply_tokens(TARGET)[:-1]) == begun + TARGET
        said = Row(PromptMessages("h", "t", "1", ()), tuple(encoder.tokenizer(family.reply)["input_ids"]))
        made = corrected_reply(said, "down", "action", encoder, keep_thoughts=True)
        end_of_thought = next((each for each in THOUGHT_MARKS.values() if each in family.reply), "")
        kept = "".join(family.reply.partition(end_of_thought)[:2]) if end_of_thought else "<think></think>"
        count = thinking_tokens(said.tokens, decode)
        closed = [kept in decode(said.tokens[:each]) for each in range(len(said.tokens) + 1)]
        assert (name, count) == (name, closed.index(True) if end_of_thought else 0)
        prompt = PromptMessages(name, "t", "1", tuple(question))
        assert decode(Scorer(encoder).encoded(prompt).ids) == decode(ids[:start])
        assert (name, decode(made.row.tokens[:-1])) == (name, f"{kept}<action>down</action>")


def test_arguments_reach_the_template(tiny: Path) -> None:
    processor = load_processor(str(tiny), "qwen2_5_vl")
    ends = "{{ '<think></think>' if enable_thinking is false else '<think>' }}"
    processor.chat_template = HISTORY.replace("PROMPT_END", ends)
    assert (Encoder(processor).closing, Encoder(processor, {"enable_thinking": False}).closing) == ("</think>", None)


def test_what_is_sampled_is_what_transformers_samples() -> None:
    """Catch a filter that keeps a token more or less, and shares that are not those of the scores."""
    rows = 2000
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(1)).expand(rows, -1)
    for heat, top_k, top_p in ((0.7, 0, 0.9), (1.0, 5, 1.0), (1.5, 12, 0.6)):
        kept = transformers.TemperatureLogitsWarper(heat)(None, scores)
        kept = transformers.TopKLogitsWarper(top_k)(None, kept) if top_k else kept
        shares = transformers.TopPLogitsWarper(top_p)(None, kept)[0].softmax(dim=0)
        sampler = SeededSampler(range(rows), [heat] * rows, [top_p] * rows, [top_k] * rows, "cpu")
        tokens = sampler(None, scores).argmax(dim=1)
        assert 2 < (shares > 0).sum() < 40 and (shares[tokens] > 0).all()
        assert (tokens.bincount(minlength=40) / rows - shares).abs().max() < 0.05
        assert torch.equal(sampler.logprobs()[:, 0], scores[0].log_softmax(dim=0)[tokens])
