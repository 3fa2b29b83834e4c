"""Labels of SVG episodes end to end, and sentences about shapes on drawings whose fault is known."""

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
from pivot.labeling.base import FailedEpisode, Filter, GuidanceWriter, Label
from pivot.labeling.domains import domain_of
from pivot.labeling.domains.svg_shapes import differences
from pivot.labeling.label import label_episodes
from pivot.labeling.replay import DisagreementError, Replayer
from pivot.labeling.statements import Statement
from pivot.labeling.target import Vocabulary, parse_target, target_modes
from pivot.labeling.writers.template import TemplateWriter
from pivot.rollouts.base import render_student
from pivot.solvers.svg.solver import SvgSolver
from pivot.tests import svg_episodes
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.labeling.reasons import count_reject_reasons
from pivot.tests.labeling.shape_checker import claims

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
def labelled(episodes: list[FailedEpisode]) -> dict[Vocabulary, list[Label]]:
    return {vocabulary: label(episodes, vocabulary) for vocabulary in VOCABULARIES}


@pytest.fixture(scope="module")
def of_mode(episodes: list[FailedEpisode], labelled: dict[Vocabulary, list[Label]]) -> dict[str, FailedEpisode]:
    """One episode of each mode, if possible with a document in every turn; of ``format`` one that sent a broken one."""
    made = sorted(zip(episodes, labelled["certificate"], strict=True), key=lambda pair: set(pair[0].actions) == {"svg"})
    by_mode = {label.failure_mode or "": episode for episode, label in made}
    broken = (e for e in episodes if e.actions[-1] == "svg" and not e.infos[-1]["valid_svg"])
    return by_mode | {"format": next(broken)}


# Labels in both vocabularies


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_label_is_accepted_and_keeps_the_certificate_mode(
    episodes: list[FailedEpisode], labelled: dict[Vocabulary, list[Label]], vocabulary: Vocabulary
) -> None:
    labels = labelled[vocabulary]
    assert count_reject_reasons(labels) == {}
    assert {made.failure_mode for made in labels} == set(PROFILE.failure_modes)
    for episode, made in zip(episodes, labels, strict=True):
        target = parse_target(made.target or "")
        assert target.pivot_step == made.pivot_step == episode.num_steps - 1
        assert target.failure_mode == (made.failure_mode if vocabulary == "certificate" else "timeout")
        assert target.failure_reason == made.failure_reason and made.image_hashes == tuple(episode.frame_ids)
        decided = log_decimals(SvgSolver(), [episode.case()], SvgSolver().certify([episode.case()]))
        assert made.prompt == analyzer_prompt(PROFILE, episode, vocabulary, decimals=decided[0])


def test_the_vocabulary_changes_targets_and_prompts_only(labelled: dict[Vocabulary, list[Label]]) -> None:
    for first, second in zip(labelled["certificate"], labelled["paper"], strict=True):
        same = replace(second, target=first.target, prompt=first.prompt, prompt_hash=first.prompt_hash)
        assert same == first and first.target != second.target and first.prompt_hash != second.prompt_hash


def test_a_target_in_the_other_vocabulary_is_rejected(
    episodes: list[FailedEpisode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pivot.labeling.label.target_mode", lambda env, mode, vocabulary: mode)
    assert count_reject_reasons(label(episodes[:5], "paper")) == {"target": 5}


# The Analyzer's prompt


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_the_prompt_explains_the_target_tile(episodes: list[FailedEpisode], vocabulary: Vocabulary) -> None:
    text = analyzer_text(PROFILE, episodes[0], vocabulary)
    assert "2x2 grid" in text and "labelled target" in text
    assert "step 0 to step 1" in text and "[0, 1]" in text
    listed = re.search(r"exactly one of: (.*)\.", text)
    assert listed is not None and tuple(listed[1].split(", ")) == target_modes(PROFILE, vocabulary)
    for mode in target_modes(PROFILE, vocabulary):
        assert re.search(rf"^- {mode}: \w+", text, re.MULTILINE), mode
    assert re.search(r"^step 1: action=\w+ valid_svg=\w+ remaining_turns=0 average_score=0\.\d\d$", text, re.MULTILINE)
    assert "saw before it acted" not in text
    content = analyzer_prompt(PROFILE, episodes[0], vocabulary).messages[0]["content"]
    assert content[0] == {"type": "image", "collage_of": list(episodes[0].frame_ids)}


# Guidance


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_guidance_is_true_and_names_no_mode(
    episodes: list[FailedEpisode], labelled: dict[Vocabulary, list[Label]], vocabulary: Vocabulary
) -> None:
    seen: Counter[str] = Counter()
    for episode, made in zip(episodes, labelled[vocabulary], strict=True):
        text = made.failure_reason or ""
        assert made.accepted and made.pivot_step is not None and made.failure_mode is not None
        assert Checker(episode, made.pivot_step, made.failure_mode).false_statements(text) == []
        for word in (*PROFILE.failure_modes, "timeout", "deadlock"):
            assert word not in text, "the advice names no mode, so it fits both vocabularies"
        seen[f"{made.failure_mode} {episode.actions[-1]}"] += 1
    assert set(seen) == {"format empty", "format svg", "regression svg", "stagnation svg", "mismatch svg"}


# Replay


def test_replay_finds_that_a_failure_was_a_success(of_mode: dict[str, FailedEpisode]) -> None:
    """Success is a return above the environment's threshold, not a flag in the log."""
    episode = of_mode["mismatch"]
    score = episode.infos[1]["average_score"]
    bar = (max(episode.infos[0]["average_score"], 0.0) + score) / 2
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
    assert "<think>...</think><answer><svg ...>...</svg></answer>" in text and task.initial_state not in text
    images, text = parts(1, "canvas", [HistoryEntry(1, "svg", "target")])
    assert images == ["target", "canvas"]
    assert "last submission" in text
    images, text = parts(2, "canvas", [HistoryEntry(1, "svg", "target"), HistoryEntry(2, "empty", "older")])
    assert images == ["target", "canvas"]
    assert "held no document" in text


RED, BLUE, DOT = (
    '<rect x="10" y="20" width="30" height="40" fill="#d02020"/>',
    '<circle cx="70" cy="30" r="12" fill="#2040d0"/>',
    '<circle cx="50" cy="85" r="5" fill="#20a040"/>',
)
SENTENCES = domain_of("svg").sentences


def drawing(*shapes: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{"".join(shapes)}</svg>'


TARGET = drawing(RED, BLUE, DOT)


def facts(drawn: str) -> list[Statement]:
    return [fact for fact, _ in differences(TARGET, drawn, 1)]


@pytest.mark.parametrize(
    ("drawn", "kind", "values"),
    [
        (drawing(RED, DOT), "missing", {"at": "70%/30%", "colour": "#2040d0", "name": "blue", "share": "4.4%"}),
        (drawing(RED, BLUE.replace("70", "55"), DOT), "moved", {"at": "70%/30%", "there": "55%/30%"}),
        (drawing(RED, BLUE.replace('"12"', '"6"'), DOT), "resized", {"share": "4.4%", "drawn": "1.1%"}),
        (drawing(RED, BLUE.replace("#2040d0", "#e0a010"), DOT), "recoloured", {"other": "#e0a010", "name": "blue"}),
        (
            drawing(RED, BLUE, DOT, '<rect x="80" y="70" width="15" height="20" fill="#111111"/>'),
            "extra",
            {"name": "black"},
        ),
    ],
)
def test_a_known_fault_is_named_and_its_negation_is_refuted(drawn: str, kind: str, values: dict[str, str]) -> None:
    ((fact, remedy),) = differences(TARGET, drawn, 1)
    assert fact.kind == kind and remedy.kind == f"fix_{kind}" and values.items() <= dict(fact.values).items()
    lies = {
        "at": "25%/75%",
        "there": "25%/75%",
        "share": "41%",
        "drawn": "41%",
        "colour": "#807f40",
        "other": "#807f40",
    }
    for each in (fact, remedy):
        for wording in range(2):
            said = SENTENCES.sentence(each, wording)
            assert list(claims(said, TARGET, drawn)) == [(kind, True)], said
            assert list(claims(said, TARGET, TARGET)) == [(kind, False)], said
            for name in lies.keys() & dict(each.values).keys():
                false = SENTENCES.sentence(
                    Statement(each.kind, tuple({**dict(each.values), name: lies[name]}.items())), wording
                )
                assert list(claims(false, TARGET, drawn)) == [(kind, False)], false


def test_at_most_three_differences_are_named_the_largest_first() -> None:
    drawn = drawing('<rect x="70" y="75" width="20" height="10" fill="#e0a010"/>')
    assert [dict(fact.values)["colour"] for fact in facts(drawn)] == ["#d02020", "#2040d0", "#e0a010"]


def test_a_difference_that_no_shape_explains_is_placed() -> None:
    drawn = drawing(RED, BLUE, DOT, '<path d="M 60 80 h 30" stroke="#000" stroke-width="1"/>')
    (fact,) = facts(drawn)
    assert fact.kind == "part_differs" and dict(fact.values)["row"] == "lower"
    said = SENTENCES.sentence(fact)
    assert list(claims(said, TARGET, drawn)) == [("part", True)]
    assert list(claims(re.sub("lower", "upper", said), TARGET, drawn)) == [("part", False)]


def test_nothing_is_said_of_a_document_that_is_not_drawn() -> None:
    assert differences(TARGET, "<svg", 1) == ()
