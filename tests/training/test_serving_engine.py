"""Stage II over real vLLM servers on the CPU, and real ways to get a hand-over of weights wrong.

Run by ``make test WHAT=serving``, in the environment of training: PIVOT_VLLM_PYTHON names the Python of vLLM's own.
"""

import os
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("PIVOT_VLLM_PYTHON", "")
if not PYTHON:
    pytest.skip("needs vLLM in an environment of its own; run: make test WHAT=serving", allow_module_level=True)

from pivot.core.errors import TrainingError  # noqa: E402 - what training needs is in its own environment
from pivot.tests.training import matrix  # noqa: E402
from pivot.tests.training.lake import lines_of, torch  # noqa: E402
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.policy_rl import loop  # noqa: E402
from pivot.training.policy_rl.engines import vllm  # noqa: E402
from pivot.training.policy_rl.engines.probe import Probe  # noqa: E402
from pivot.training.policy_rl.engines.vllm import ServedModel, Server, post, reset_caches  # noqa: E402
from pivot.training.policy_rl.levels import first_turns  # noqa: E402

pytestmark = pytest.mark.serving
FAMILY = "qwen2_5_vl"
UPDATES = 5
LIMITS = '--enforce-eager --block-size 32 --max-model-len 4096 --limit-mm-per-prompt \'{"image": 6, "video": 0}\''
# What torch would compile for a model of this size takes longer than all that is asked of it.
VARIABLES = "VLLM_CPU_KVCACHE_SPACE=1 VLLM_SERVER_DEV_MODE=1 TORCHDYNAMO_DISABLE=1"
COMMAND = f"env {VARIABLES} {PYTHON} -m vllm.entrypoints.openai.api_server --dtype float32 {LIMITS}"


def _save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    matrix.player(FAMILY)[1].save_pretrained(folder)
    return folder


def _probe() -> Probe:
    turns = first_turns(matrix.levels_of("frozenlake"), 4)
    encoder = Encoder(matrix.player(FAMILY)[1])
    connect = partial(ServedModel, config={}, banned=encoder.placeholders, in_flight=4)
    return Probe(encoder, turns, connect, half=False)


def _moved(model: Any, part: str, by: float = 0.02) -> Any:
    """A copy of a model after a step of training, of some of its weights alone."""
    moved = deepcopy(model)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weights in moved.named_parameters():
            if part in name:
                weights.add_(by * torch.randn_like(weights))
    return moved


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
    # The same without telling the server to forget: what it remembers of the prompts is of other adapters.
    monkeypatch.setattr(vllm, "reset_caches", lambda _: None)
    with pytest.raises(TrainingError, match="stale caches"):
        loop.train(loop.prepare(config), tmp_path / "stale")


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str, Path]]:
    """A server on a model with tied embeddings."""
    yield from _served(matrix.player(FAMILY)[0], tmp_path_factory.mktemp("tied"))


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str, Path]]:
    """The same of a model with an output head of its own."""
    yield from _served(_untied(), tmp_path_factory.mktemp("untied"))


def _untied() -> Any:
    model = deepcopy(matrix.player(FAMILY)[0])
    for config in (model.config, model.config.text_config):
        config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def _served(model: Any, folder: Path) -> Iterator[tuple[Any, str, Path]]:
    server = Server(COMMAND, folder / "server")
    try:
        server.restart([str(_save(model, folder / "model"))])
        yield model, server.url, folder / "model"
    finally:
        server.close()


def test_a_stale_vision_tower_is_found(tied: tuple[Any, str, Path]) -> None:
    model, url, _ = tied
    assert _probe().check(model, url) < 1e-3
    with pytest.raises(TrainingError, match="it has other weights"):
        _probe().check(_moved(model, "visual", 0.1), url)


def test_a_reload_that_leaves_the_head_untied_is_found(tied: tuple[Any, str, Path]) -> None:
    model, url, folder = tied
    moved = _moved(model, "language_model")
    _reload(moved, url, folder)
    reset_caches(url)
    with pytest.raises(TrainingError, match="it has other weights"):
        _probe().check(moved, url)


def test_a_stale_prefix_cache_is_found_and_an_emptied_one_is_right(untied: tuple[Any, str, Path]) -> None:
    model, url, folder = untied
    assert _probe().check(model, url) < 1e-3
    moved = _moved(model, "language_model")
    _reload(moved, url, folder)
    with pytest.raises(TrainingError, match="stale caches"):
        _probe().check(moved, url)
    reset_caches(url)
    assert _probe().check(moved, url) < 1e-3


def _reload(model: Any, url: str, folder: Path) -> None:
    _save(model, folder)
    post(url.removesuffix("/v1") + "/collective_rpc", {"method": "reload_weights"})
