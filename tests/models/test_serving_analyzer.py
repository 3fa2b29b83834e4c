"""A model of ``pivot train sft``, served by vLLM: the command that measures it over the server reads the same replies.

The run is trained, and measured in process, by the interpreter that PIVOT_TRAINER names (``make test WHAT=serving``
does): its transformers is a newer one than vLLM's CPU build takes, as it is for a user who trains here and serves
there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pivot.datasets.store.nights import load_store
from pivot.tests.flow_runs import clean_environment
from pivot.tests.models.vllm_server import NAME, vllm_server

pytest.importorskip("vllm", reason="needs vLLM; run: make test WHAT=serving")
TRAINER = os.environ.get("PIVOT_TRAINER", "")
pytestmark = [
    pytest.mark.serving,
    pytest.mark.skipif(not TRAINER, reason="needs an interpreter with TRL: PIVOT_TRAINER=.venv/maniskill/bin/python"),
]

MODEL = "import sys; from pathlib import Path; from pivot.tests.training.small import save_quick_model as save; "
MODEL += "save(*map(Path, sys.argv[1:]))"


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


@pytest.mark.parametrize("python", [TRAINER, sys.executable], ids=["newer", "older"])
def test_either_transformers_loads_the_folder(analyzer: Path, python: str, tmp_path: Path) -> None:
    """It also loads as a policy: ``--policy transformers``."""
    model = ("--policy", "transformers", "--model", analyzer / "final", "--max-tokens", "4")
    pivot_with(python, "build", "sokoban", "--tasks", "1", "--rollouts", "2", *model, "--out", tmp_path / "store")
    assert load_store(tmp_path / "store").episodes.collect()["status"].to_list() == ["complete", "complete"]
