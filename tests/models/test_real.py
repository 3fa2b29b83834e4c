"""A tiny real Qwen2.5-VL, in this process: any output becomes a valid record."""

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import ConfigError, PolicyError
from pivot.core.messages import CUT
from pivot.datasets.store.nights import load_store
from pivot.models.base import ChatAnswer
from pivot.models.transformers.model import Engine, TransformersModel
from pivot.models.transformers.processors import VIDEO_PART, has_torchvision, image_text_class, load_processor
from pivot.models.weights import revision_of
from pivot.tests.flow_runs import config_of, fingerprint

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
from pivot.tests.models.real_models import assert_right_records, largest_difference, recomputed, request_of, save_model

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine.load(str(folder), None, "auto", "auto")


def answers(engine: Engine, *requests: Any) -> list[ChatAnswer]:
    results = engine.answer(requests)
    assert all(isinstance(each, ChatAnswer) for each in results), results
    return results  # pyright: ignore[reportReturnType]


# One model in this process


def test_a_reply_does_not_depend_on_its_batch(engine: Engine) -> None:
    requests = [request_of(number, text="look " * (1 + number % 5)) for number in range(12)]
    together = answers(engine, *requests)
    alone = [answers(engine, request)[0] for request in requests]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]
    assert [each.text for each in answers(engine, *reversed(requests))] == [each.text for each in together][::-1]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert len({each.text for each in together}) == len(requests)


def test_replies_follow_seed_and_sample(engine: Engine) -> None:
    request = request_of(1)
    same, again, other, sample = answers(engine, request, request, replace(request, seed=5), replace(request, sample=1))
    assert same == replace(again, call=same.call) and len({same.text, other.text, sample.text}) == 3


def test_log_probabilities_are_those_of_the_model(engine: Engine) -> None:
    """Log-probabilities come from the raw scores: neither temperature nor nucleus sampling changes them."""
    settings: list[dict[str, Any]] = [{}, {"temperature": 0.4}, {"top_p": 0.5}, {"top_k": 3}, {"temperature": 0.0}]
    for sampling in settings:
        (answer,) = answers(engine, request_of(3, **sampling))
        assert answer.logprobs == pytest.approx(
            recomputed(engine, request_of(3), list(answer.token_ids or ())), abs=1e-4
        )


def test_tokens_are_drawn_from_the_model_s_distribution(engine: Engine) -> None:
    """The first token of 400 seeds against the probabilities that the log-probabilities state."""
    requests = [request_of(7, seed=seed, max_tokens=1, top_k=4) for seed in range(400)]
    drawn: Counter[int] = Counter()
    chances: dict[int, float] = {}
    for first in range(0, 400, 50):
        for answer in answers(engine, *requests[first : first + 50]):
            assert answer.token_ids is not None and answer.logprobs is not None
            assert len(answer.token_ids) == len(answer.logprobs) == 1
            drawn[answer.token_ids[0]] += 1
            chances[answer.token_ids[0]] = math.exp(answer.logprobs[0])
    assert 2 <= len(drawn) <= 4
    total = sum(chances.values())
    for token, count in drawn.items():
        expected = 400 * chances[token] / total
        assert abs(count - expected) < 5 * math.sqrt(expected) + 5


def test_greedy_takes_the_best_token(engine: Engine) -> None:
    one, other = answers(engine, request_of(2, temperature=0.0), replace(request_of(2, temperature=0.0), seed=9))
    assert one.token_ids == other.token_ids
    (narrow,) = answers(engine, request_of(2, top_k=1))
    (nucleus,) = answers(engine, request_of(2, top_p=1e-6))
    assert narrow.token_ids == nucleus.token_ids == one.token_ids


SCHEMA = {
    "type": "object",
    "properties": {
        "sign": {"type": "string", "enum": ["hole", "far"]},
        "facts": {"type": "array", "items": {"type": "string", "enum": ["one", "two"]}, "minItems": 1, "maxItems": 2},
        "wording": {"type": "integer", "minimum": 0, "maximum": 3},
        "prose": {"type": "string", "maxLength": 9},
    },
    "required": ["sign", "facts", "wording", "prose"],
    "additionalProperties": False,
}


def test_a_schema_is_kept_by_its_own_row_alone(engine: Engine) -> None:
    free = [request_of(number, max_tokens=120) for number in range(3)]
    together = answers(engine, *free, *[replace(each, seed=each.seed + 9, json_schema=SCHEMA) for each in free])
    assert [each.token_ids for each in together[:3]] == [answers(engine, each)[0].token_ids for each in free]
    values = [json.loads(each.text) for each in together[3:]]
    for value in values:
        assert list(value) == SCHEMA["required"] and value["sign"] in ("hole", "far") and 0 <= value["wording"] <= 3
        assert {*value["facts"]} <= {"one", "two"} and 1 <= len(value["facts"]) <= 2 and len(value["prose"]) <= 9
    assert len({json.dumps(each) for each in values}) > 1, "the model, not the schema, chooses"


def test_every_row_ends_at_its_own_limit(engine: Engine) -> None:
    short, long = answers(engine, request_of(4, max_tokens=3), request_of(5, max_tokens=30))
    assert (len(short.token_ids or ()), short.finish_reason) == (3, CUT)
    assert len(long.token_ids or ()) <= 30
    assert len(short.logprobs or ()) == 3 and short.call["completion_tokens"] == 3
    (alone,) = answers(engine, request_of(4, max_tokens=30))
    assert (alone.token_ids or ())[:3] == short.token_ids
    late = engine._read(request_of(4, max_tokens=3), [*(short.token_ids or ()), *engine._ends], [0.0] * 9, 1, 0.0)
    assert (late.token_ids, late.finish_reason) == (short.token_ids, CUT), "an end after the limit is none"


def test_a_request_that_cannot_be_shown_fails_alone(engine: Engine) -> None:
    good, bad = request_of(1), request_of(2)
    key, frame = next(iter(bad.images.items()))
    first, second = engine.answer([replace(bad, images={key: replace(frame, image=b"no picture")}), good])
    assert isinstance(first, PolicyError) and "cannot be shown" in str(first)
    assert isinstance(second, ChatAnswer)
    first, second = engine.answer([request_of(3, text="look " * 40_000), good])
    assert isinstance(first, PolicyError) and "exceed" in str(first)
    assert isinstance(second, ChatAnswer)


def test_a_model_that_cannot_be_loaded_is_reported(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else five tries to reach a hub
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        TransformersModel(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot load model"):
        Engine.load("nobody/nothing", None, "auto", "cpu")
    with pytest.raises(ConfigError, match="device 'cuda:99'"):
        Engine.load(str(folder), None, "auto", "cuda:99")
    with pytest.raises(ConfigError, match="dtype"):
        Engine.load(str(folder), None, "int3", "cpu")  # pyright: ignore[reportArgumentType]


def test_many_requests_share_a_batch(folder: Path) -> None:
    model = TransformersModel(str(folder), batch_size=8)

    async def ask() -> list[ChatAnswer]:
        return await asyncio.gather(*[model.answer(request_of(number)) for number in range(16)])

    replies = asyncio.run(ask())
    assert len({answer.call["latency"] for answer in replies}) <= 4  # time of the whole batch
    assert asyncio.run(ask())[3].text == replies[3].text  # another event loop, the same thread


def test_the_revision_of_a_folder_is_its_content(folder: Path, tmp_path: Path) -> None:
    revision = revision_of(str(folder), None)
    copy = save_model(tmp_path / "copy")
    assert revision == revision_of(str(copy), None) and revision is not None and revision.startswith("local-")
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert revision_of(str(copy), None) != revision and revision_of(str(copy), "mine") == "mine"


def test_processors_without_torchvision(folder: Path) -> None:
    assert type(load_processor(str(folder), "qwen2_5_vl")).__name__ == "Qwen2_5_VLProcessor"
    assert image_text_class("qwen3_vl").__name__ == "Qwen3VLProcessor"
    if not has_torchvision():
        with pytest.raises(ConfigError, match="need torchvision"):
            load_processor(str(folder), "llava")


def test_a_processor_without_a_video_part_is_saved_with_one(folder: Path, tmp_path: Path) -> None:
    processor = image_text_class("qwen2_5_vl").from_pretrained(folder)
    processor.save_pretrained(tmp_path / "saved")
    part = json.loads((tmp_path / "saved" / VIDEO_PART).read_text(encoding="utf-8"))
    assert part["video_processor_type"] == "Qwen2VLVideoProcessor"
    assert part["patch_size"] == processor.image_processor.patch_size

    own = part | {"max_frames": 3}  # taken from the model that a run started from
    (tmp_path / "saved" / VIDEO_PART).write_text(json.dumps(own), encoding="utf-8")
    processor.save_pretrained(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / VIDEO_PART).read_text(encoding="utf-8")) == own


# The whole pipeline


def local_part(folder: Path, **options: Any) -> dict[str, Any]:
    return {"name": "transformers", "options": {"model": str(folder), "max_tokens": 16, **options}}


def test_the_pipeline_with_the_model_in_this_process(folder: Path, engine: Engine, tmp_path: Path) -> None:
    config = config_of(
        {"sokoban": 2, "frozenlake": 2},
        rollouts=2,
        policy=local_part(folder, batch_size=12),
        teacher=local_part(folder, batch_size=12, max_tokens=40, temperature=1.0),
    )
    pivot.build(config, tmp_path / "store")
    labels = assert_right_records(tmp_path / "store", engine.processor.tokenizer)
    # A random model's text never becomes guidance.
    assert not labels["accepted"].any()
    reasons = {(reason["name"], reason["kind"]) for row in labels["reject_reasons"] for reason in row}
    assert {name for name, _ in reasons} == {"teacher"}
    assert reasons & {("teacher", "truncated"), ("teacher", "not_json")}
    assert largest_difference(tmp_path / "store", engine) < 1e-3
    policy = load_store(tmp_path / "store").episodes.collect()["policy_config"][0]
    assert "local-" in policy and '"temperature":1.0' in policy
    pivot.build(config, tmp_path / "again")
    # Batches form by chance, and the last digits of a log-probability follow their shape; nothing else does.
    tables = [
        {
            path: digest
            for path, digest in fingerprint(tmp_path / name).items()
            if path.endswith(".parquet") and not path.startswith("steps/")
        }
        for name in ("store", "again")
    ]
    assert tables[0] == tables[1]
    first, second = (load_store(tmp_path / name).steps.collect() for name in ("store", "again"))
    assert first.drop("response_logprobs").equals(second.drop("response_logprobs"))
    for one, other in zip(first["response_logprobs"].to_list(), second["response_logprobs"].to_list(), strict=True):
        assert one == pytest.approx(other, abs=1e-5)
