"""Labels of SVG episodes end to end: prompt and target in both vocabularies, guidance, facts filter, acting prompt."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import pytest
from pivot.core import plugins
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.turns import HistoryEntry
from pivot.labeling.action_log import log_decimals
from pivot.labeling.analyzer import analyzer_prompt, analyzer_text
from pivot.labeling.base import (
    FailedEpisode,
    Filter,
    GuidanceWriter,
    Label,
)
from pivot.labeling.label import label_episodes
from pivot.labeling.replay import DisagreementError, Replayer
from pivot.labeling.target import Vocabulary, parse_target, target_modes
from pivot.labeling.writers.template import TemplateWriter
from pivot.rollouts.base import render_student
from pivot.solvers.svg.solver import SvgSolver
from pivot.tests import svg_episodes
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.labeling.reasons import count_reject_reasons

PROFILE = SvgEnv.profile
FILTERS: list[Filter] = [plugins.load("filters", name)() for name in plugins.names("filters")]
VOCABULARIES: tuple[Vocabulary, ...] = get_args(Vocabulary)


@pytest.fixture(scope="module")
def episodes() -> list[FailedEpisode]:
    return svg_episodes.failures()


def label(
    episodes: Sequence[FailedEpisode], vocabulary: Vocabulary = "certificate", teacher: GuidanceWriter | None = None
) -> list[Label]:
    return label_episodes(episodes, SvgSolver(), teacher or TemplateWriter(), FILTERS, "1", vocabulary)


@pytest.fixture(scope="module")
def of_mode(episodes: list[FailedEpisode]) -> dict[str, FailedEpisode]:
    """One episode of each mode, if possible with a document in every turn; of ``format`` one that sent a broken one."""
    made = sorted(zip(episodes, label(episodes), strict=True), key=lambda pair: set(pair[0].actions) == {"svg"})
    by_mode = {label.failure_mode or "": episode for episode, label in made}
    broken = (e for e in episodes if e.actions[-1] == "svg" and not e.infos[-1]["valid_svg"])
    return by_mode | {"format": next(broken)}


# Labels in both vocabularies


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_label_is_accepted_and_keeps_the_certificate_mode(
    episodes: list[FailedEpisode], vocabulary: Vocabulary
) -> None:
    labels = label(episodes, vocabulary)
    assert count_reject_reasons(labels) == {}
    assert {made.failure_mode for made in labels} == set(PROFILE.failure_modes)
    for episode, made in zip(episodes, labels, strict=True):
        target = parse_target(made.target or "")
        assert target.pivot_step == made.pivot_step == episode.num_steps - 1
        assert target.failure_mode == (made.failure_mode if vocabulary == "certificate" else "timeout")
        assert target.failure_reason == made.failure_reason
        assert made.image_hashes == tuple(episode.frame_ids)
        decided = log_decimals(SvgSolver(), [episode.case()], SvgSolver().certify([episode.case()]))
        assert made.prompt == analyzer_prompt(PROFILE, episode, vocabulary, decimals=decided[0])


def test_the_vocabulary_changes_targets_and_prompts_only(episodes: list[FailedEpisode]) -> None:
    for first, second in zip(label(episodes), label(episodes, "paper"), strict=True):
        same = replace(second, target=first.target, prompt=first.prompt, prompt_hash=first.prompt_hash)
        assert same == first
        assert first.target != second.target
        assert first.prompt_hash != second.prompt_hash


def test_a_target_in_the_other_vocabulary_is_rejected(
    episodes: list[FailedEpisode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pivot.labeling.label.target_mode", lambda env, mode, vocabulary: mode)
    assert count_reject_reasons(label(episodes[:5], "paper")) == {"target": 5}


# The Analyzer's prompt


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_analyzer_is_told_about_the_target_tile(episodes: list[FailedEpisode], vocabulary: Vocabulary) -> None:
    text = analyzer_text(PROFILE, episodes[0], vocabulary)
    assert "2x2 grid" in text
    assert "labelled target" in text
    assert "step 0 to step 1" in text
    assert "[0, 1]" in text
    listed = re.search(r"exactly one of: (.*)\.", text)
    assert listed is not None
    assert tuple(listed[1].split(", ")) == target_modes(PROFILE, vocabulary)
    for mode in target_modes(PROFILE, vocabulary):
        assert re.search(rf"^- {mode}: \w+", text, re.MULTILINE), mode
    assert re.search(r"^step 1: action=\w+ valid_svg=\w+ remaining_turns=0 average_score=0\.\d\d$", text, re.MULTILINE)
    assert "saw before it acted" not in text
    content = analyzer_prompt(PROFILE, episodes[0], vocabulary).messages[0]["content"]
    assert content[0] == {"type": "image", "collage_of": list(episodes[0].frame_ids)}


# Guidance


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_guidance_is_true_and_names_no_mode(episodes: list[FailedEpisode], vocabulary: Vocabulary) -> None:
    seen: Counter[str] = Counter()
    for episode, made in zip(episodes, label(episodes, vocabulary), strict=True):
        text = made.failure_reason or ""
        assert made.accepted and made.pivot_step is not None and made.failure_mode is not None
        assert Checker(episode, made.pivot_step, made.failure_mode).false_statements(text) == []
        for word in (*PROFILE.failure_modes, "timeout", "deadlock"):
            assert word not in text, "the advice names no mode, so it fits both vocabularies"
        seen[f"{made.failure_mode} {episode.actions[-1]}"] += 1
    assert set(seen) == {"format empty", "format svg", "regression svg", "stagnation svg", "mismatch svg"}


# Replay


def test_replay_finds_that_a_failure_was_a_success(of_mode: dict[str, FailedEpisode]) -> None:
    """Success is the return against this environment's own bar, not a bit in the log."""
    episode = of_mode["mismatch"]
    score = episode.infos[1]["average_score"]
    first = episode.infos[0]["average_score"]
    bar = (max(first, 0.0) + score) / 2
    easy = Replayer(SvgEnv(SvgConfig(success_return=bar)))
    with pytest.raises(DisagreementError, match="ends in success"):
        easy.check(episode)


# The acting prompt


def test_the_student_sees_the_target_on_every_turn() -> None:
    prompt, task = plugins.load("prompts", "svg"), svg_episodes.rollouts(9)[0].task

    def parts(t: int, frame: str, history: Sequence[HistoryEntry]) -> tuple[list[str], str]:
        rendered = render_student(prompt, PROFILE, task, t=t, frame_id=frame, history=history)
        assert (rendered.template, rendered.version) == ("student.svg", "1")
        content = rendered.messages[0]["content"]
        text = "\n".join(part["text"] for part in content if part["type"] == "text")
        return [part["frame_id"] for part in content if part["type"] == "image"], text

    images, text = parts(0, "target", [])
    assert images == ["target"]
    assert "<think>...</think><answer><svg ...>...</svg></answer>" in text
    assert task.initial_state not in text
    images, text = parts(1, "canvas", [HistoryEntry(1, "svg", "target")])
    assert images == ["target", "canvas"]
    assert "last submission" in text
    images, text = parts(2, "canvas", [HistoryEntry(1, "svg", "target"), HistoryEntry(2, "empty", "older")])
    assert images == ["target", "canvas"]
    assert "held no document" in text
