"""Stage II over real vLLM servers on the CPU, and real ways to get a hand-over of weights wrong.

Run by ``make test WHAT=serving``, in the environment of training: PIVOT_VLLM_PYTHON names the Python of vLLM's own.
"""

import os
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("PIVOT_VLLM_PYTHON", "")
if not PYTHON:
    pytest.skip("needs vLLM in an environment of its own; run: make test WHAT=serving", allow_module_level=True)

from pivot.core.errors import TrainingError  # noqa: E402 - what training needs is in its own environment
from pivot.tests.training import matrix  # noqa: E402
from pivot.tests.training.lake import lines_of  # noqa: E402
from pivot.training.policy_rl import loop  # noqa: E402
from pivot.training.policy_rl.engines import vllm  # noqa: E402

pytestmark = pytest.mark.serving
FAMILY = "qwen2_5_vl"
UPDATES = 5
LIMITS = '--enforce-eager --block-size 32 --max-model-len 4096 --limit-mm-per-prompt \'{"image": 6, "video": 0}\''
# For a model of this size, compiling takes longer than all requests.
VARIABLES = "VLLM_CPU_KVCACHE_SPACE=1 VLLM_SERVER_DEV_MODE=1 TORCHDYNAMO_DISABLE=1"
COMMAND = f"env {VARIABLES} {PYTHON} -m vllm.entrypoints.openai.api_server --dtype float32 {LIMITS}"


def _save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    matrix.player(FAMILY)[1].save_pretrained(folder)
    return folder


def test_five_updates_and_a_probe_that_agrees_after_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = _save(matrix.player(FAMILY)[0], tmp_path / "start")
    monkeypatch.setattr(loop, "plan_levels", lambda _: matrix.levels_of("frozenlake"))
    config = matrix.config_of("frozenlake", "mpr", str(start))
    config = config.model_copy(update={"engine": "vllm", "updates": UPDATES, "server_command": COMMAND, "opd": 1.0})
    loop.train(loop.prepare(config), tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == list(range(1, UPDATES + 1))
    for line in lines:
        print(f"probe after {line['step'] - 1} updates: {line['sync_difference']:.1e}")  # noqa: T201 - to report
        assert line["sync_difference"] < 1e-3
        assert line["generator_difference"] < 1e-3
        assert line["errors"] == line["placeholders"] == 0
        assert line["grad_norm"] > 0


def test_adapters_are_swapped_in_a_running_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = _save(matrix.player(FAMILY)[0], tmp_path / "start")
    monkeypatch.setattr(loop, "plan_levels", lambda _: matrix.levels_of("frozenlake"))
    config = matrix.config_of("frozenlake", "mpr", str(start))
    served = {"engine": "vllm", "updates": UPDATES, "server_command": COMMAND, "opd": 1.0}
    config = config.model_copy(update={"lora": True, "lora_rank": 8, "lr": 1e-2, **served})
    loop.train(loop.prepare(config), tmp_path / "run")
    for line in lines_of(tmp_path / "run"):
        print(f"probe after {line['step'] - 1} updates: {line['sync_difference']:.1e}")  # noqa: T201 - to report
        assert line["sync_difference"] < 1e-3
        assert line["generator_difference"] < 1e-3
        assert line["grad_norm"] > 0
    # Without clearing the prefix cache, the server uses entries of other adapters.
    monkeypatch.setattr(vllm, "reset_caches", lambda _: None)
    with pytest.raises(TrainingError, match="stale caches"):
        loop.train(loop.prepare(config), tmp_path / "stale")
