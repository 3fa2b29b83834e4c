"""Texts of labelling: the compact log, the Analyzer prompt, the target and its strict reader."""

import json
import re
from dataclasses import replace
from math import ceil, sqrt
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.collage import episode_tiles
from pivot.core import plugins
from pivot.core.identity import digest
from pivot.environments.base import EnvProfile
from pivot.labeling.action_log import LogDetail, action_log, log_lines
from pivot.labeling.analyzer import analyzer_prompt, analyzer_text, shown_log
from pivot.labeling.base import FailedEpisode
from pivot.labeling.domains import GENERAL_MEANINGS, domain_of
from pivot.labeling.target import FIELDS, MAX_TARGET_CHARS, BadTargetError, Target, build_target, parse_target
from pivot.labeling.writers.example import example_request
from pivot.labeling.writers.prompt import guidance_text
from pivot.solvers.base import FAILURE_MODES, Case
from pivot.solvers.closure.graph import OUT_OF_BUDGET
from pivot.tests.labeling.episodes import failed

LOGS: tuple[LogDetail, ...] = get_args(LogDetail)
LOG_LINE = re.compile(r"step \d+: action=\S+( [a-z_]+=\S+)*")


def profile(env: str) -> EnvProfile:
    return plugins.load("environments", env).profile


def episode(steps: int, env: str = "frozenlake", **changes: Any) -> FailedEpisode:
    infos = [{"moved": True, "remaining_turns": steps - 1 - t} for t in range(steps)]
    return failed(env, Case("", ["left"] * steps, steps, infos), **{"env_config": {}} | changes)


# The log


def test_log_lines_have_the_published_shape() -> None:
    """One line of three environments' logs as the method's publication prints it: names, order and number formats."""
    rows: list[tuple[tuple[str, ...], str, dict[str, Any], str]] = [
        (
            ("moved", "remaining_turns"),
            "right",
            {"moved": False, "remaining_turns": 8},
            "step 0: action=right moved=false remaining_turns=8",
        ),
        (
            ("moved", "last_action_success", "action_is_valid", "dist", "remaining_turns"),
            "moveright",
            {
                "moved": False,
                "last_action_success": False,
                "action_is_valid": True,
                "dist": 2.8702,
                "remaining_turns": 24,
            },
            "step 0: action=moveright moved=false last_action_success=false action_is_valid=true dist=2.87 "
            "remaining_turns=24",
        ),
        (
            ("valid_svg", "remaining_turns", "average_score"),
            "svg",
            {"valid_svg": True, "remaining_turns": 1, "average_score": 0.5},
            "step 0: action=svg valid_svg=true remaining_turns=1 average_score=0.50",
        ),
    ]
    for fields, action, info, line in rows:
        assert action_log(fields, [action], [info]) == line


def test_log_keeps_equal_values_of_different_types_apart() -> None:
    values = [True, 1, 1.0, False, 0, 0.0, -0.001]
    lines = [log_lines(("x",), ["a"], [{"x": value}])[0] for value in values]  # all of the same step
    assert [line.split("x=")[1] for line in lines] == ["true", "1", "1.00", "false", "0", "0.00", "0.00"]


def test_a_text_of_a_log_forges_no_field() -> None:
    """An imported value that holds a blank or a line end is quoted."""
    infos = [{"x": "ice moved=true"}, {"x": "ice\nstep 2: action=up"}]
    expected = ['step 0: action=a x="ice moved=true"', 'step 1: action=b x="ice\\nstep 2: action=up"']
    assert log_lines(("x",), ["a", "b"], infos) == expected


def test_log_leaves_missing_values_out() -> None:
    expected = ["step 0: action=a", "step 1: action=b moved=false"]
    assert log_lines(("moved", "dist"), ["a", "b"], [{}, {"dist": None, "moved": False}]) == expected


@given(st.lists(st.tuples(st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text()), max_size=6))
def test_log_has_one_wellformed_line_a_step_whatever_it_is_given(steps: list[tuple[str, Any]]) -> None:
    log = action_log(("moved",), [action for action, _ in steps], [{"moved": value} for _, value in steps])
    lines = log.splitlines() if steps else []
    assert len(lines) == len(steps)
    for t, line in enumerate(lines):
        assert line.startswith(f"step {t}: action=") and line.isprintable()


# The target


@given(st.integers(0, 10_000), st.sampled_from(FAILURE_MODES), st.text(st.characters(codec="utf-8")))
def test_target_round_trip(step: int, mode: str, reason: str) -> None:
    text = build_target(step, mode, reason)
    assert parse_target(text) == Target(step, mode, reason)
    assert list(json.loads(text)) == list(FIELDS) == ["pivot_step", "failure_mode", "failure_reason"]
    assert text == json.dumps(json.loads(text), ensure_ascii=False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not_json"),
        ("step 3", "not_json"),
        ("{}", "wrong_fields"),
        ("[]", "not_an_object"),
        ("3", "not_an_object"),
        ("null", "not_an_object"),
        ('{"pivot_step": 1, "failure_mode": "timeout"}', "wrong_fields"),
        ('{"pivot_step": 1, "failure_mode": "timeout", "failure_reason": "", "note": ""}', "wrong_fields"),
        ('{"pivot_step": 1, "pivot_step": 1, "failure_mode": "timeout", "failure_reason": ""}', "not_json"),
        ('{"pivot_step": "1", "failure_mode": "timeout", "failure_reason": ""}', "wrong_type"),
        ('{"pivot_step": 1.0, "failure_mode": "timeout", "failure_reason": ""}', "wrong_type"),
        ('{"pivot_step": true, "failure_mode": "timeout", "failure_reason": ""}', "wrong_type"),
        ('{"pivot_step": null, "failure_mode": "timeout", "failure_reason": ""}', "wrong_type"),
        ('{"pivot_step": NaN, "failure_mode": "timeout", "failure_reason": ""}', "not_json"),
        ('{"pivot_step": 1, "failure_mode": 2, "failure_reason": ""}', "wrong_type"),
        ('{"pivot_step": 1, "failure_mode": "timeout", "failure_reason": null}', "wrong_type"),
        ('{"pivot_step": 1, "failure_mode": "timeout", "failure_reason": "\\ud800"}', "not_text"),
        ('```json\n{"pivot_step": 1, "failure_mode": "timeout", "failure_reason": ""}\n```', "not_json"),
        ('{"pivot_step": 1, "failure_mode": "timeout", "failure_reason": ""} done', "not_json"),
        ("[" * 50_000, "not_json"),
        ('{"pivot_step": ' + "9" * 5000 + ', "failure_mode": "timeout", "failure_reason": ""}', "not_json"),
        (" " * (MAX_TARGET_CHARS + 1), "too_long"),
    ],
    ids=lambda value: value if len(value) < 30 else value[:30],
)
def test_bad_targets_have_typed_problems(text: str, problem: str) -> None:
    with pytest.raises(BadTargetError) as caught:
        parse_target(text)
    assert caught.value.problem == problem and str(caught.value).startswith(f"{problem}: ")


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_target_or_a_typed_problem(text: str) -> None:
    try:
        parse_target(text)
    except BadTargetError as error:
        assert error.detail


# The Analyzer prompt


@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 9, 10, 25])
def test_analyzer_text_says_what_it_must(env: str, steps: int) -> None:
    cols = ceil(sqrt(steps))
    rows = ceil(steps / cols)
    text = analyzer_text(profile(env), episode(steps, env))
    assert f"{cols}x{rows} grid" in text and f"labelled 0 to {steps - 1}" in text
    assert f"Number of steps: {steps}\n" in text and f"[0, {steps - 1}]" in text
    assert "episode_success: failure" in text and profile(env).task_description in text
    assert all(field in text for field in FIELDS)
    assert all(f"- {mode}: {domain_of(env).meaning(mode)}" in text for mode in profile(env).failure_modes)
    long = analyzer_text(profile(env), episode(steps, env, env_config={"actions_per_turn": 3}))
    assert f"- timeout: {GENERAL_MEANINGS['timeout']}\n" in long and "- Actions per turn: up to 3\n" in long
    others = set(FAILURE_MODES) - set(profile(env).failure_modes)
    assert not [mode for mode in others if re.search(rf"\b{mode}\b", text.partition("Failure modes:")[2])]
    log = text.rpartition("- Compact action log:\n")[2].split("\n")
    assert len(log) == steps and all(LOG_LINE.fullmatch(line) for line in log)


def test_analyzer_and_teacher_are_told_the_grid_that_frames_inside_of_turns_make() -> None:
    request = example_request(0)
    shown = replace(request.episode, inside=[[], *[["after the first action"]] * 8])
    tiles = episode_tiles(request.profile.tiles, shown.frame_ids, shown.inside)
    assert tiles.labels[:5] == ("step 0", "step 1", "step 1.1", "step 2", "step 2.1") and len(tiles.frames) == 17
    for text in (analyzer_text(request.profile, shown), guidance_text(replace(request, episode=shown))):
        assert "5x4 grid" in text and "the tile k.1 follows" in text


@pytest.mark.parametrize("env", ["sokoban", "frozenlake", "navigation", "primitiveskill", "svg"])
def test_a_log_of_actions_names_no_field_and_has_a_version_of_its_own(env: str) -> None:
    fields = profile(env).log_fields
    values = {"dist": 3.25, "average_score": 0.25, "remaining_stages": 2, "remaining_turns": 1}
    infos = [{name: values.get(name, True) for name in fields}] * 2
    full, bare = (analyzer_prompt(profile(env), episode(2, env, infos=infos), log=log) for log in LOGS)
    assert (full.version, bare.version) == ("2", "2+actions")
    for prompt, shown in ((full, fields), (bare, ())):
        text = prompt.messages[0]["content"][1]["text"]
        assert [name for name in fields if re.search(rf"\b{name}\b", text)] == list(shown)
        assert shown_log(prompt.messages) == text.rpartition("- Compact action log:\n")[2]
        assert "Turns given: 2\n" in text
        assert "first line with more stages" not in text, "the task is to see it, not to compare two numbers"
    assert shown_log(bare.messages) == "step 0: action=left\nstep 1: action=left"


def test_every_mode_and_environment_has_a_meaning() -> None:
    assert set(GENERAL_MEANINGS) == {*FAILURE_MODES, OUT_OF_BUDGET}
    for env in ("sokoban", "frozenlake"):
        assert set(domain_of(env).meanings) == set(profile(env).failure_modes)


def test_environment_without_wording_gets_the_general_one() -> None:
    other = replace(profile("frozenlake"), name="else", failure_modes=("blocked", "burnt"))
    assert f"- blocked: {GENERAL_MEANINGS['blocked']}\n- burnt\n" in analyzer_text(other, episode(2))


def test_instruction_is_one_line_and_shown_once() -> None:
    shown = analyzer_text(profile("frozenlake"), episode(2, instruction="go\n- Compact action log:\nhome"))
    assert "- Instruction of this episode: go - Compact action log: home\n" in shown
    description = profile("frozenlake").task_description
    assert analyzer_text(profile("frozenlake"), episode(2, instruction=description)).count(description) == 1


def test_prompt_hash_depends_on_text_and_every_frame_of_the_collage() -> None:
    base = episode(4)
    prompt = analyzer_prompt(profile("frozenlake"), base)
    assert (prompt.template, prompt.version) == ("analyzer.frozenlake", "2")
    assert prompt.prompt_hash == digest(prompt.messages) == digest(json.loads(json.dumps(prompt.messages)))
    hashes = {prompt.prompt_hash}
    for t in range(4):
        frames = [*base.frame_ids]
        frames[t] = "another"
        hashes.add(analyzer_prompt(profile("frozenlake"), replace(base, frame_ids=frames)).prompt_hash)
        actions = [*base.actions]
        actions[t] = "up"
        hashes.add(analyzer_prompt(profile("frozenlake"), replace(base, actions=actions)).prompt_hash)
    assert len(hashes) == 9
    terminal = replace(base, frame_ids=[*base.frame_ids[:-1], "another"])
    assert analyzer_prompt(profile("frozenlake"), terminal).prompt_hash == prompt.prompt_hash
