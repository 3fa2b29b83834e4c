"""Check generation engines from outside: runs use them by name, and answers that break the contract are refused."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.errors import PluginError, TrainingError
from pivot.tests.training import matrix
from pivot.tests.training.lake import lines_of
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import make_rl_config

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("generators")]
FAMILY = "qwen2_5_vl"
SOURCE = """
from copy import deepcopy
from pivot.plugin import Generator
from pivot.training.policy_rl.engines.in_process import InProcessBackend
from pivot.models.transformers.model import Engine

class Copy(Generator):
    closed = saved = 0
    answers = {"sync": 0.5}

    def __init__(self, trained):
        super().__init__(trained)
        self.copy = None

    def sync(self, save):
        save(str(self.trained.folder / ".copy"))
        Copy.saved += 1
        encoder = self.trained.scorer.encoder
        self.copy = Engine(deepcopy(self.trained.model), encoder.processor, encoder.placeholders)
        return self.answers["sync"]

    def backend(self, options):
        return self.answers.get("backend") or InProcessBackend(options, self.copy or self.trained.engine, batch=8)

    def close(self):
        Copy.closed += 1
        return self.answers.get("close")
"""


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a package that registers the engine ``one_copy``."""
    module = ModuleType("outside_engine")
    exec(SOURCE, module.__dict__)
    monkeypatch.setitem(sys.modules, "outside_engine", module)
    point = EntryPoint("one_copy", "outside_engine:Copy", "pivot.generators")
    installed: Callable[[str], list[EntryPoint]] = plugins.registered
    monkeypatch.setattr(plugins, "registered", lambda group: [*installed(group), *[point] * (group == "generators")])
    monkeypatch.setattr(plugins, "load", plugins.cache(plugins.load.__wrapped__))
    return module


@pytest.fixture
def config(outside: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of two updates that generates with the engine from outside."""
    matrix.share(monkeypatch, "frozenlake", FAMILY)
    config = matrix.config_of("frozenlake", "mp", str(matrix.saved(FAMILY, tmp_path / "model")))
    return make_rl_config(config.model_dump() | {"engine": "one-copy", "updates": 2, "validation_episodes": 4})


def test_a_run_generates_with_an_engine_from_outside(config: Any, outside: Any, tmp_path: Path) -> None:
    loop.train(loop.prepare(config), tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert outside.Copy.saved == 3, "the weights after 0, 1 and 2 updates, each once"
    assert outside.Copy.closed == 1
    for line in lines[1:]:
        assert line["sync_difference"] == 0.5
        assert line["generator_difference"] < 1e-5, "the engine has the weights of the last update"


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("sync", -0.5, r"sync\(\) = -0\.5, expected nats, 0 or more"),
        ("sync", "done", r"sync\(\) = 'done', expected nats, 0 or more"),
        ("backend", "a model", r"backend\(\) = 'a model', expected a Backend"),
        ("close", 3, r"close\(\) = 3, expected None"),
    ],
)
def test_an_answer_that_breaks_the_contract_ends_the_run(
    method: str, answer: Any, expected: str, config: Any, outside: Any, tmp_path: Path
) -> None:
    outside.Copy.answers = {"sync": None} | {method: answer}
    with pytest.raises(PluginError, match=rf"generation engine 'one_copy' \(outside_engine:Copy.* answered {expected}"):
        loop.train(loop.prepare(config), tmp_path / "run")


def test_an_engine_is_refused_by_name_and_when_it_is_loaded(config: Any, outside: Any) -> None:
    with pytest.raises(TrainingError, match=r"found 'sglang', expected one of: in-process, vllm, one-copy"):
        make_rl_config(config.model_dump() | {"engine": "sglang"})
    outside.Copy.copies_weights = "yes"
    with pytest.raises(PluginError, match=r"its copies_weights is 'yes', expected True or False"):
        loop.prepare(config)
    outside.Copy = dict
    plugins.load.cache_clear()
    with pytest.raises(PluginError, match=r"does not fit the group pivot.generators: .* expected a subclass of"):
        loop.prepare(config)
