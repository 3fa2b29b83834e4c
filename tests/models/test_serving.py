"""vLLM on this machine's CPU around a tiny real Qwen2.5-VL: the pipeline over its server.

Run by ``make test WHAT=serving`` in an environment of its own. What vLLM states as log-probabilities, transformers
computes.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.cli.doctor import server_facts
from pivot.core.errors import ConfigError
from pivot.core.messages import CUT
from pivot.datasets.store.nights import load_store
from pivot.models.openai.model import OpenAIModel
from pivot.models.service import Service
from pivot.models.transformers.model import Engine
from pivot.tests.flow_runs import config_of

pytest.importorskip("vllm", reason="needs vLLM; run: make test WHAT=serving")
from pivot.tests.models.real_models import (
    assert_right_records,
    largest_difference,
    names_a_picture,
    readable,
    recomputed,
    request_of,
    save_model,
    trained,
)
from pivot.tests.models.vllm_server import NAME, vllm_server

pytestmark = pytest.mark.serving

TOLERANCE = 1e-3
TASKS = {"sokoban": 2, "frozenlake": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        made = tmp_path_factory.mktemp("model")
        # Saved as by training, so that all tests here also prove that vLLM loads a trained Analyzer.
        yield trained(save_model(made / "source"), made / "run")


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with vllm_server(folder, tmp_path_factory.mktemp("server") / "log") as address:
        yield address


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine.load(str(folder), None, "float32", "cpu")


def part(url: str, **options: Any) -> dict[str, Any]:
    service = {"base_url": url, "cache": "", "max_concurrency": 16}
    return {"name": "openai", "options": {"model": NAME, **options}, "service": service}


def test_doctor_finds_all_that_a_run_needs(url: str) -> None:
    facts = asyncio.run(server_facts(NAME, Service(base_url=url, cache="")))
    assert facts["log-probabilities"] == "with token ids" and not facts["checkpoint"].startswith("not named")
    with pytest.raises(ConfigError, match=NAME):
        asyncio.run(server_facts("other", Service(base_url=url, cache="")))


def test_the_pipeline_over_the_server(url: str, engine: Engine, tmp_path: Path) -> None:
    config = config_of(
        TASKS, rollouts=4, policy=part(url, max_tokens=24), teacher=part(url, max_tokens=300, temperature=1.0)
    )
    root = tmp_path / "store"
    pivot.build(config, root)
    labels = assert_right_records(root, engine.processor.tokenizer)
    worst = largest_difference(root, engine, steps=100)
    print(f"largest difference of a log-probability to transformers: {worst:.1e}")  # noqa: T201 - a figure to report
    assert worst < TOLERANCE
    # Structured output gives random words the right form; filters still judge their content.
    assert load_store(root).calls.filter(pl.col("role") == "teacher").collect().height >= labels.height
    kinds = [reason["kind"] for row in labels["reject_reasons"] for reason in row if reason["name"] == "teacher"]
    assert "not_json" not in kinds
    for row in labels.filter(pl.col("accepted")).to_dicts():
        assert str(row["pivot_step"]) in row["failure_reason"] or row["failure_reason"]


def test_seeds_are_obeyed_by_the_server(url: str, engine: Engine) -> None:
    async def ask() -> list[Any]:
        remote = OpenAIModel(NAME, None, Service(base_url=url, cache=""))
        requests = [request_of(number) for number in range(8)]
        there = await asyncio.gather(*[remote.answer(request) for request in requests])
        again = await asyncio.gather(*[remote.answer(request) for request in reversed(requests)])
        await remote.aclose()
        return [requests, there, again[::-1]]

    requests, there, again = asyncio.run(ask())
    assert [each.token_ids for each in there] == [each.token_ids for each in again]
    for request, answer in zip(requests, there, strict=True):
        if not names_a_picture(engine, answer.token_ids):
            assert answer.logprobs == pytest.approx(recomputed(engine, request, list(answer.token_ids)), abs=TOLERANCE)
        assert answer.finish_reason == CUT or answer.token_ids[-1] == engine.processor.tokenizer.eos_token_id
        assert answer.text.replace("\ufffd", "") == readable(engine.processor.tokenizer, answer.token_ids)
