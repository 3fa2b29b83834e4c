"""vLLM on this machine's CPU around a tiny real Qwen2.5-VL, and around a model of ``pivot train sft``.

Run by ``make test WHAT=serving`` in an environment of its own. What vLLM states as log-probabilities, transformers
computes. The run of ``pivot train sft`` is trained, and measured in process, by the interpreter that PIVOT_TRAINER
names: its transformers is a newer one than vLLM's CPU build takes, as for a user who trains here and serves there.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
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
from pivot.tests.flow_runs import clean_environment, config_of, free_port

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

pytestmark = pytest.mark.serving

TRAINER = os.environ.get("PIVOT_TRAINER", "")
TOLERANCE = 1e-3
START_SECONDS = 900.0
"""Longest start: half a minute on an idle machine, five on a busy one."""
NAME = "tiny"


@contextlib.contextmanager
def vllm_server(folder: Path, log: Path) -> Iterator[str]:
    """Serve the model in ``folder`` as ``tiny`` and give the base URL; the server's output goes to ``log``.

    The module is started by name because the ``vllm`` command of the CPU build is broken.
    """
    port = free_port()
    words = ["--model", str(folder), "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "4096", "--generation-config", "vllm"]
    # vLLM rewinds the request's generator after half a prompt, which a generator of the CPU refuses.
    words += ["--no-enable-chunked-prefill"]
    words += ["--limit-mm-per-prompt", '{"image": 4, "video": 0}', "--logprobs-mode", "raw_logprobs"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w") as sink:
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words],
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,  # the working folder must not hold a folder `datasets`
        )
        try:
            _wait(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"vLLM did not start:\n{log.read_text()[-4000:]}")


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
        {"sokoban": 2, "frozenlake": 2},
        rollouts=4,
        policy=part(url, max_tokens=24),
        teacher=part(url, max_tokens=300, temperature=1.0),
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


# A model of ``pivot train sft``

MODEL = "import sys; from pathlib import Path; from pivot.tests.training.small import save_quick_model as save; "
MODEL += "save(*map(Path, sys.argv[1:]))"


needs_trainer = pytest.mark.skipif(
    not TRAINER, reason="needs an interpreter with TRL: PIVOT_TRAINER=.venv/maniskill/bin/python"
)


def pivot_with(python: str, *arguments: Any) -> str:
    """Run the command, or code after ``-c``, under an interpreter; return its output."""
    words = ["-m", "pivot", *arguments] if arguments[0] != "-c" else arguments
    environment = clean_environment() | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, *map(str, words)], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


READ = """
import json, sys
from pivot.training.analyzer import Analyzer, ask_all, case_of_record, reading_of

from pivot.training.evaluation.run import make_backend
from pivot.training.records import SHOWN_COLUMNS, open_records

model, store, *url = sys.argv[1:]
service = {"base_url": url[0], "cache": ""} if url else {}
backend = make_backend("openai" if url else "transformers", {"model": model, "max_tokens": 80}, service)
rows = open_records(store, "sokoban").rows("train", SHOWN_COLUMNS)
analyzer = Analyzer(backend)

async def ask(model, case):
    return reading_of(await model.answer(analyzer.request(case)), case)

readings = ask_all(backend, map(case_of_record, rows), ask)
print(json.dumps([[each.reply, each.problem] for each in readings]))
"""


@pytest.fixture(scope="module")
def analyzer(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ``pivot train sft`` whose Analyzer has the shape of the target by heart."""
    root = tmp_path_factory.mktemp("analyzer")
    pivot_with(TRAINER, "-c", MODEL, root / "model", small_store / "dataset")
    how = ("--recipe", "tiny", "--config", "sokoban", "--epochs", "30", "--lr", "0.01")
    pivot_with(TRAINER, "train", "sft", small_store, "--model", root / "model", *how, "--out", root / "run")
    return root / "run"


@needs_trainer
def test_the_server_is_measured_as_the_folder_is(small_store: Path, analyzer: Path, tmp_path: Path) -> None:
    common = ("--config", "sokoban", "--side", "train", "--no-learned", "--max-tokens", "80")
    pivot_with(TRAINER, "evaluate", "analyzer", analyzer, *common, "--out", tmp_path / "here")
    with vllm_server(analyzer / "final", tmp_path / "log") as url:
        server = ("--base-url", url, "--no-cache", "--data", small_store)
        pivot_with(TRAINER, "evaluate", "analyzer", NAME, *common, *server, "--out", tmp_path / "there")
        there = json.loads(pivot_with(TRAINER, "-c", READ, NAME, small_store, url))
    here = json.loads(pivot_with(TRAINER, "-c", READ, analyzer / "final", small_store))
    assert here == there and len(here) == 16
    assert sum(problem is None for _, problem in here) > 8, here
    figures = [json.loads((tmp_path / side / "result.json").read_text())["cells"] for side in ("here", "there")]
    assert figures[0] == figures[1]


@needs_trainer
@pytest.mark.parametrize("python", [TRAINER, sys.executable], ids=["newer", "older"])
def test_either_transformers_loads_the_folder(analyzer: Path, python: str, tmp_path: Path) -> None:
    """It also loads as a policy: ``--policy transformers``."""
    model = ("--policy", "transformers", "--model", analyzer / "final", "--max-tokens", "4")
    pivot_with(python, "build", "sokoban", "--tasks", "1", "--rollouts", "2", *model, "--out", tmp_path / "store")
    assert load_store(tmp_path / "store").episodes.collect()["status"].to_list() == ["complete", "complete"]
