"""The analysis of failures uses the vocabulary that Stage I taught, and takes typed episodes."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("transformers")

from pivot.core.errors import TrainingError
from pivot.datasets.store.schema import EPISODES, STEPS
from pivot.datasets.store.tables import failed_episodes, rollout_tables
from pivot.labeling.domains import domain_of
from pivot.labeling.statements import statement
from pivot.labeling.target import Vocabulary, build_target
from pivot.models.base import ChatAnswer, ChatRequest, ModelOptions
from pivot.rollouts.base import TaskRollouts
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.training.matrix import SETTINGS, levels_of
from pivot.training.checkpoint import taught_vocabulary
from pivot.training.policy_rl.advantages import group
from pivot.training.policy_rl.config import RlConfig, make_rl_config
from pivot.training.policy_rl.hindsight.analysis import Failures, analyze, failed_episode, make_samples
from pivot.training.policy_rl.levels import Levels, plan_levels, roll_out
from pivot.training.ranks import ALONE

pytestmark = pytest.mark.train

WORDS: dict[Vocabulary, str] = {
    "certificate": "exactly one of: format, regression, stagnation, mismatch.",
    "paper": "exactly one of: timeout, deadlock.",
}


class _Backend:
    """A model that gives every failure the same answer, and keeps its requests."""

    name, config, settings = "same", {}, ModelOptions(model="same")

    def __init__(self, mode: str) -> None:
        self.mode, self.asked = mode, list[str]()

    def connect(self) -> "_Backend":
        return self

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        self.asked.append(next(part["text"] for part in request.messages[0]["content"] if part["type"] == "text"))
        return ChatAnswer(build_target(0, self.mode))

    async def aclose(self) -> None:
        pass


RENDERED = domain_of("svg").sentences
TEXTS = (
    RENDERED.sentence(statement("all_shapes")),
    RENDERED.sentence(statement("fell", step=0, before="0.99", after="0.01")),
    "Be careful next time.",
)
"""Guidance that is true of a mismatch, that is rendered and false, and that is prose."""


class _Guide(_Backend):
    """An Analyzer that gives guidance of the three kinds in turn."""

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        await super().answer(request)
        return ChatAnswer(build_target(0, self.mode, TEXTS[(len(self.asked) - 1) % 3]))


def _shown_guidance(source: str) -> tuple[Failures, dict[str, str]]:
    """Return the analysis of an update, and the guidance in the Teacher's prompts by episode."""
    config, levels, rollouts = _update("certificate", "mpr", guidance=source)
    failures = analyze(rollouts, levels, config, _Guide("stagnation"), ALONE)  # pyright: ignore[reportArgumentType]
    samples = make_samples(rollouts, group(rollouts, config), failures, levels, config, lambda _: "")
    return failures, {name: each.guidance for name, each in samples.hindsight.items()}


def test_guidance_of_the_analyzer_is_read_back_into_facts() -> None:
    failures, shown = _shown_guidance("facts")
    texts = [reading.failure_reason for reading in failures.readings.values()]
    assert len(texts) > 5
    kinds = [None if each is None else each.kind for each in failures.objections.values()]
    modes = {name: verdict.failure_mode for name, verdict in failures.verdicts.items()}
    true = [text == TEXTS[0] and modes[name] == "mismatch" for name, text in zip(failures.readings, texts, strict=True)]
    assert any(true)
    others = ("untrue", "untrue", "unknown_sentence")
    assert kinds == [None if holds else others[TEXTS.index(text)] for holds, text in zip(true, texts, strict=True)]
    figures = failures.figures()
    assert figures["analyzer_guidance_prose"] == pytest.approx(texts.count(TEXTS[2]) / len(texts))
    assert figures["analyzer_guidance_true"] == sum(true) / (len(texts) - texts.count(TEXTS[2]))
    assert [shown[name] for name in failures.readings] == ["" if text == TEXTS[2] else text for text in texts]
    failures, shown = _shown_guidance("prose")
    assert shown == {name: reading.failure_reason for name, reading in failures.readings.items()}


def _update(vocabulary: Vocabulary, arm: str, **more: Any) -> tuple[RlConfig, Levels, list[TaskRollouts]]:
    fields = {"env": "svg", "settings": {"horizon": 2}, "model": "none", "levels": 12, "prompts": 1, "arm": arm}
    config: RlConfig = make_rl_config(fields | {"target_vocabulary": vocabulary} | more)
    levels = plan_levels(config)
    return config, levels, roll_out(levels, levels.train[:6], ScriptedPolicy(), 2)


def _analyzed(vocabulary: Vocabulary, arm: str, backend: _Backend) -> Failures:
    config, levels, rollouts = _update(vocabulary, arm)
    return analyze(rollouts, levels, config, backend, ALONE)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("vocabulary", ["certificate", "paper"])
def test_the_analyzer_is_asked_and_measured_in_the_words_of_stage_one(vocabulary: Vocabulary) -> None:
    spoken = "timeout" if vocabulary == "paper" else "stagnation"
    backend = _Backend(spoken)
    failures = _analyzed(vocabulary, "mp", backend)
    assert len(backend.asked) == len(failures.episodes) > 2
    assert all(WORDS[vocabulary] in text for text in backend.asked)
    figures = failures.figures()
    assert figures["analyzer_unreadable"] == 0
    right = [verdict.failure_mode == "stagnation" for verdict in failures.verdicts.values()]
    assert figures["analyzer_mode_accuracy"] == (1.0 if vocabulary == "paper" else sum(right) / len(right))
    other = _Backend("stagnation" if vocabulary == "paper" else "timeout")
    assert _analyzed(vocabulary, "mp", other).figures()["analyzer_unreadable"] == 1.0


@pytest.mark.parametrize("env", sorted(SETTINGS))
def test_failures_in_memory_are_those_of_a_store(env: str) -> None:
    levels = levels_of(env)
    rollouts = roll_out(levels, levels.train[:4], ScriptedPolicy(), 4)
    tables = rollout_tables(rollouts)
    stored = failed_episodes(tables[EPISODES], tables[STEPS])
    assert stored == [failed_episode(each) for task in rollouts for each in task.episodes if each.failed]
    assert stored


@pytest.mark.parametrize("vocabulary", ["certificate", "paper"])
def test_the_oracle_says_the_words_of_stage_one(vocabulary: Vocabulary) -> None:
    failures = _analyzed(vocabulary, "oracle", _Backend(""))
    assert failures.figures()["analyzer_mode_accuracy"] == 1.0
    modes = {reading.failure_mode for reading in failures.readings.values()}
    assert (modes == {"timeout"}) == (vocabulary == "paper")


def test_a_run_says_which_words_it_taught(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    assert taught_vocabulary(str(tmp_path / "final")) is None
    (tmp_path / "run.json").write_text('{"config": {}, "target_vocabulary": "paper"}', encoding="utf-8")
    assert taught_vocabulary(str(tmp_path / "final")) == "paper"
    assert taught_vocabulary(str(tmp_path / "best")) == "paper"
    assert taught_vocabulary(str(tmp_path)) is None
    assert taught_vocabulary("organisation/model") is None
    (tmp_path / "run.json").write_text("[", encoding="utf-8")
    with pytest.raises(TrainingError, match=r"run\.json cannot be read"):
        taught_vocabulary(str(tmp_path / "final"))
