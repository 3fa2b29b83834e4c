"""The analysis of failures and the arms that learn from the solver's plan: vocabulary, correction, runs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("transformers")
import pivot
import pytest
from pivot.core.errors import TrainingError
from pivot.core.messages import PromptMessages
from pivot.datasets.store.config import solver_type
from pivot.datasets.store.schema import EPISODES, STEPS
from pivot.datasets.store.tables import failed_episodes, rollout_tables
from pivot.labeling.domains import domain_of
from pivot.labeling.hindsight import Hindsight, hindsight_text
from pivot.labeling.label import certify_episodes
from pivot.labeling.statements import statement
from pivot.labeling.target import Vocabulary, build_target
from pivot.models.base import ChatAnswer, ChatRequest, ModelOptions
from pivot.rollouts.base import TaskRollouts
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.api import certify
from pivot.tests.models.from_scratch import bpe_tokenizer
from pivot.tests.policy_rl.matrix import SETTINGS, levels_of
from pivot.tests.training.lake import run, short, torch, weights_in
from pivot.training.checkpoint import taught_vocabulary
from pivot.training.policy_rl.advantages import group
from pivot.training.policy_rl.config import RlConfig, make_rl_config
from pivot.training.policy_rl.hindsight.analysis import Failures, analyze, failed_episode, make_samples
from pivot.training.policy_rl.hindsight.corrections import corrected_reply, corrected_steps
from pivot.training.policy_rl.learner import Learner
from pivot.training.policy_rl.levels import Levels, plan_levels, roll_out
from pivot.training.policy_rl.scoring import Row
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


def _shown(**more: Any) -> tuple[Failures, Mapping[str, Hindsight]]:
    """Return the analysis of an update, and the hindsight in the Teacher's prompts by episode."""
    config, levels, rollouts = _update("certificate", **{"arm": "mpr"} | more)
    failures = analyze(rollouts, levels, config, _Guide("stagnation"), ALONE)  # pyright: ignore[reportArgumentType]
    samples = make_samples(rollouts, group(rollouts, config), failures, levels, config, lambda _: "")
    return failures, samples.hindsight


def test_hindsight_about_turns_of_several_moves_counts_turns() -> None:
    _, shown = _shown(arm="oracle", env="frozenlake", settings={"horizon": 2, "actions_per_turn": 2})
    late = [hindsight_text("frozenlake", each) for each in shown.values() if each.mode == "timeout"]
    assert late and all("(the goal could still be reached, but not within" in text for text in late)


def test_guidance_of_the_analyzer_is_read_back_into_facts() -> None:
    failures, shown = _shown()
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
    shown_texts = [shown[name].guidance for name in failures.readings]
    assert shown_texts == ["" if text == TEXTS[2] else text for text in texts]
    failures, shown = _shown(guidance="prose")
    assert {shown[name].guidance == each.failure_reason for name, each in failures.readings.items()} == {True}


def _update(vocabulary: Vocabulary, arm: str, **more: Any) -> tuple[RlConfig, Levels, list[TaskRollouts]]:
    fields = {"env": "svg", "settings": {"horizon": 2}, "model": "none", "levels": 12, "prompts": 1, "arm": arm}
    config: RlConfig = make_rl_config(fields | {"target_vocabulary": vocabulary, "seed": 2} | more)
    levels = plan_levels(config)
    return config, levels, roll_out(levels, levels.train[:6], ScriptedPolicy(), 2)


def _analyzed(vocabulary: Vocabulary, arm: str, backend: _Backend) -> Failures:
    config, levels, rollouts = _update(vocabulary, arm)
    return analyze(rollouts, levels, config, backend, ALONE)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("vocabulary", ["certificate", "paper"])
def test_analyzer_and_oracle_use_the_mode_names_of_stage_one(vocabulary: Vocabulary) -> None:
    spoken = "timeout" if vocabulary == "paper" else "stagnation"
    backend = _Backend(spoken)
    failures = _analyzed(vocabulary, "mp", backend)
    assert len(backend.asked) == len(failures.episodes) > 2
    assert all(WORDS[vocabulary] in text for text in backend.asked)
    certified = certify_episodes(failures.episodes, solver_type("svg")(), vocabulary)
    assert max(each.decimals for each in certified) > 2
    assert backend.asked == [each.prompt.messages[0]["content"][-1]["text"] for each in certified]
    figures = failures.figures()
    assert figures["analyzer_unreadable"] == 0
    right = [verdict.failure_mode == "stagnation" for verdict in failures.verdicts.values()]
    assert figures["analyzer_mode_accuracy"] == (1.0 if vocabulary == "paper" else sum(right) / len(right))
    other = _Backend("stagnation" if vocabulary == "paper" else "timeout")
    assert _analyzed(vocabulary, "mp", other).figures()["analyzer_unreadable"] == 1.0
    failures = _analyzed(vocabulary, "oracle", _Backend(""))
    assert failures.figures()["analyzer_mode_accuracy"] == 1.0
    assert ({each.failure_mode for each in failures.readings.values()} == {"timeout"}) == (vocabulary == "paper")


@pytest.mark.parametrize("env", sorted(SETTINGS))
def test_failures_in_memory_are_those_of_a_store(env: str) -> None:
    levels = levels_of(env)
    rollouts = roll_out(levels, levels.train[:4], ScriptedPolicy(), 4)
    tables = rollout_tables(rollouts)
    stored = failed_episodes(tables[EPISODES], tables[STEPS])
    assert stored == [failed_episode(each) for task in rollouts for each in task.episodes if each.failed]
    assert stored


def test_a_run_records_the_mode_names_it_taught(tmp_path: Path) -> None:
    (tmp_path / "final").mkdir()
    assert taught_vocabulary(str(tmp_path / "final")) is None
    (tmp_path / "run.json").write_text('{"config": {}, "target_vocabulary": "paper"}', encoding="utf-8")
    assert {taught_vocabulary(str(tmp_path / name)) for name in ("final", "best")} == {"paper"}
    assert taught_vocabulary(str(tmp_path)) is None
    assert taught_vocabulary("organisation/model") is None
    (tmp_path / "run.json").write_text("[", encoding="utf-8")
    with pytest.raises(TrainingError, match=r"run\.json cannot be read"):
        taught_vocabulary(str(tmp_path / "final"))


WHERE = ("pivot", "random", "start", "first-mistake", "largest-loss", "all")


def _lost(env: str, state: str, actions: Sequence[str], **fields: int) -> list[float]:
    """Turns that each turn lost, by the credit of an episode with turns to spare; infinite for the goal itself."""
    (credit,) = pivot.credit(env, [{"initial_state": state, "actions": actions, "horizon": 60, **fields}])
    assert isinstance(credit, tuple)
    return [math.inf if turn.progress is None else 1.0 - turn.progress for turn in credit]


@pytest.mark.parametrize(
    ("env", "settings", "most"),
    [
        ("frozenlake", {"size": 4, "horizon": 9}, 1),
        ("frozenlake", {"size": 4, "horizon": 4}, 2),
        ("sokoban", {"horizon": 4}, 2),
    ],
)
def test_corrections_stand_where_they_should_and_lose_no_turn(env: str, settings: dict[str, Any], most: int) -> None:
    """Judged by the credit of the agent's turns, and of the corrected turn in their place."""
    many: dict[str, Any] = {"actions_per_turn": most} if most > 1 else {}
    levels = plan_levels(short("none", env=env, settings=settings | many, levels=40))
    rollouts = roll_out(levels, levels.train, ScriptedPolicy(), 4)
    solver = solver_type(env)()
    counts = dict.fromkeys(WHERE, 0)
    failures = [each for task in rollouts for each in task.episodes if each.failed]
    for episode in failures:
        verdict = certify(env, episode.initial_state, episode.actions, episode.horizon, **many)
        lost = _lost(env, episode.initial_state, episode.actions, **many)
        mistakes = [t for t, turns in enumerate(lost) if turns >= 2 and math.inf not in lost[:t]]
        worst = [t for t in mistakes if lost[t] == max(lost)][:1]
        expected = {"all": mistakes, "first-mistake": mistakes[:1], "largest-loss": worst}
        for which in WHERE:
            corrections = corrected_steps(episode, verdict, which, solver, {}, most)
            steps = [step for step, _ in corrections]
            assert steps == expected.get(which, steps), which
            for step, turn in corrections:
                counts[which] += 1
                if which == "pivot":
                    assert step == verdict.pivot_step
                    assert turn in verdict.feasible_actions or most > 1
                    assert episode.actions[step] != turn
                    continue
                changed = [*episode.actions[:step], turn]
                assert _lost(env, episode.initial_state, changed, **many)[step] == 0, which
                assert lost[step] > 0 or which == "start"
                assert which != "start" or step == 0
                assert which != "random" or step != verdict.pivot_step
    assert min(counts.values()) > len(failures) // 8, counts


class _Reader:
    """The part of an encoder that makes replies, over a given tokenizer."""

    placeholders = ()
    end = 0

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def reply_tokens(self, text: str) -> list[int]:
        return [*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.end]


@pytest.mark.parametrize("whole", [(), ("</think>",), ("><", "<action>")])
def test_own_thoughts_stay_and_the_action_alone_is_learned(whole: tuple[str, ...]) -> None:
    tokenizer = bpe_tokenizer([], 264, dict.fromkeys(whole))
    reader: Any = _Reader(tokenizer)
    prompt = PromptMessages("h", "t", "1", ())
    spoken = Row(prompt, tuple(reader.reply_tokens("<think>left it is</think><action>left</action>")))
    made = corrected_reply(spoken, "up", "action", reader, keep_thoughts=True)
    text = tokenizer.decode(made.row.tokens[:-1])
    assert text == "<think>left it is</think><action>up</action>"
    assert "think" not in tokenizer.decode(made.row.tokens[-made.supervised : -1])
    assert made.supervised < len(made.row.tokens)
    bare = corrected_reply(spoken, "up", "action", reader, keep_thoughts=False)
    assert tokenizer.decode(bare.row.tokens[:-1]) == "<think></think><action>up</action>"
    assert bare.supervised == len(bare.row.tokens)


@pytest.mark.parametrize(
    ("figure", "fields"),
    [
        ("loss_correction", {"arm": "witness", "correction_step": "pivot"}),
        ("loss_correction", {"arm": "witness", "correction_step": "all"}),
        ("loss_correction", {"arm": "dpo_pivot", "correction_step": "pivot"}),
        ("loss_correction", {"arm": "dpo_pivot", "correction_step": "start"}),
        ("loss_opd", {"arm": "oracle", "opd_objective": "distribution", "opd": 1.0}),
    ],
)
def test_the_plan_is_learned_alike_in_any_micro_batches(
    figure: str, fields: dict[str, Any], player: Path, tmp_path: Path
) -> None:
    (one,) = run(tmp_path / "one", player, updates=1, lr=1e-5, **fields)
    (split,) = run(tmp_path / "split", player, micro_batch_tokens=70, updates=1, lr=1e-5, **fields)
    assert figure == "loss_opd" or one["corrections"] > 0
    assert one[figure] > 0
    assert one[figure] == pytest.approx(split[figure], rel=1e-4)
    before, after = weights_in(tmp_path / "one" / "final"), weights_in(tmp_path / "split" / "final")
    assert all(torch.allclose(before[name], after[name], atol=2e-5) for name in before)


@pytest.mark.parametrize("arm", ["witness", "dpo_pivot"])
def test_learning_corrections_makes_them_likely_and_resumes(
    arm: str, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[tuple[float, float]] = []
    update = Learner.update

    def twice(learner: Learner, *arguments: Any) -> dict[str, float | None]:
        first, second = (update(learner, *arguments) for _ in range(2))
        losses.append((first["loss_correction"] or 0.0, second["loss_correction"] or 0.0))
        return second

    monkeypatch.setattr(Learner, "update", twice)
    fields: dict[str, Any] = {"arm": arm, "correction": 100.0, "updates": 2, "save_every": 1, "lr": 1e-4}
    whole = run(tmp_path / "whole", player, minibatch=1000, **fields)
    assert all(0 < second < first for first, second in losses)
    fields["updates"] = 1
    run(tmp_path / "parts", player, minibatch=1000, **fields)
    fields["updates"] = 2
    assert run(tmp_path / "parts", player, minibatch=1000, resume=True, **fields) == whole


def test_what_cannot_be_corrected_is_refused(player: Path) -> None:
    with pytest.raises(TrainingError, match="corrects nothing"):
        short(player, arm="oracle", correction_step="random")
    with pytest.raises(TrainingError, match="found teacher_weights 'live', expected 'ema'"):
        short(player, arm="oracle", teacher_decay=0.5)
