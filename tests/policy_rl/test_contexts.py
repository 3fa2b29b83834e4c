"""Contexts of the Teacher: the arms, the position of the context, and its parts in each arm."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pivot.collage import episode_tiles, panel
from pivot.core import plugins
from pivot.core.images import decode
from pivot.environments.turns import StudentPrompt
from pivot.labeling.hindsight import Hindsight, hindsight_text, teacher_prompt
from pivot.tests.policy_rl.failures import ENVS, failures_of, frame_ids
from pivot.training.analyzer import Reading
from pivot.training.policy_rl.hindsight.contexts import ARMS, hindsight_of, random_other_step

ADVICE = "Keep away from the holes. Go left at once."


def _context(env: str, arm: str) -> tuple[Any, Hindsight, Any]:
    """The Student's and the Teacher's messages at the first step of a failure."""
    rollouts, episode = next(failures_of(env))
    profile = plugins.load("environments", env).profile
    frames = {key: frame.image for key, frame in rollouts.frames.items()}
    named = Reading(episode.num_steps - 1, profile.failure_modes[0], ADVICE)
    hindsight = hindsight_of(ARMS[arm], profile, episode.episode_id, frame_ids(episode), named, frames)
    template: StudentPrompt = plugins.load("prompts", env)
    student = rollouts.prompts[episode.steps[0].prompt_hash]
    return student, hindsight, teacher_prompt(student, template, env, hindsight)


def _parts(prompt: Any) -> list[Any]:
    return list(prompt.messages[-1]["content"])


@pytest.mark.parametrize("env", ENVS)
def test_the_context_has_its_specified_position(env: str) -> None:
    student, hindsight, teacher = _context(env, "mpr")
    assert hindsight.panel is not None
    words = {"type": "text", "text": hindsight_text(env, hindsight)}
    picture = {"type": "image", "frame_id": hindsight.panel.frame_id}
    own = _parts(student)
    if env in ("sokoban", "frozenlake"):
        assert own[-2]["type"] == "image", "the panel comes right after the current picture"
        assert _parts(teacher) == [*own[:-1], picture, words, own[-1]]
    else:
        assert _parts(teacher) == [*own, words, picture]
    assert teacher.template == f"teacher.{env}"
    assert teacher.prompt_hash != student.prompt_hash
    assert "nobody knew it" not in str(student.messages)
    recorded = teacher_prompt(replace(student, template="recorded"), plugins.load("prompts", env), env, hindsight)
    assert _parts(recorded) == [*own, words, picture]  # the last part of a prompt of somebody else may be anything


@pytest.mark.parametrize("arm", ["vanilla_grpo", "sft_grpo", "empty", "analyzer_only"])
def test_without_a_context_the_teacher_sees_the_very_prompt_of_the_student(arm: str) -> None:
    student, _, teacher = _context("frozenlake", arm)
    assert teacher is student


@pytest.mark.parametrize(
    ("arm", "holds"),
    [
        ("p", "panel"),
        ("m", "mode"),
        ("mp", "panel mode pivot"),
        ("oracle", "panel mode pivot"),
        ("mpr", "panel mode pivot guidance"),
        ("mp_random_r", "panel mode pivot guidance"),
    ],
)
def test_each_arm_shows_the_parts_that_its_name_lists(arm: str, holds: str) -> None:
    _, hindsight, teacher = _context("sokoban", arm)
    text = hindsight_text("sokoban", hindsight)
    present = {
        "panel": "The last picture" in text,
        "mode": "timeout" in text,
        "pivot": f"step {hindsight.step}, counted from 0" in text,
        "guidance": ADVICE in text,
    }
    assert {part for part, there in present.items() if there} == set(holds.split())
    assert (hindsight.panel is not None) is present["panel"]
    pictures = [part for part in _parts(teacher) if part["type"] == "image"]
    assert len(pictures) == 1 + present["panel"]


@pytest.mark.parametrize(("env", "arm"), [("frozenlake", "mp"), ("svg", "mp"), ("sokoban", "mp_random_r")])
def test_the_panel_is_the_three_frames_around_the_step_it_names(env: str, arm: str) -> None:
    rollouts, episode = next(failures_of(env))
    _, hindsight, _ = _context(env, arm)
    assert hindsight.panel is not None
    assert (hindsight.step == episode.num_steps - 1) is (arm == "mp")
    profile = plugins.load("environments", env).profile
    steps = episode_tiles(profile.tiles, frame_ids(episode)).steps
    expected = panel([decode(rollouts.frames[key].image) for key in steps], hindsight.step)
    assert np.array_equal(decode(hindsight.panel.image), expected)


def test_a_random_step_is_uniform_over_the_others() -> None:
    drawn = Counter(random_other_step(f"episode-{number}", 3, 9) for number in range(8000))
    assert set(drawn) == set(range(9)) - {3}
    assert max(abs(count - 1000) for count in drawn.values()) < 150
