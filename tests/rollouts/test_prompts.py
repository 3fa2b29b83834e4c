"""Check the text of the Student prompts, and the names and the cache of rendered prompts."""

import importlib
import re
from dataclasses import replace
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.identity import digest
from pivot.core.messages import PromptMessages
from pivot.environments.base import Task
from pivot.environments.navigation.environment import NavigationEnv
from pivot.environments.navigation.world import ACTIONS
from pivot.environments.primitiveskill.environment import PrimitiveSkillEnv
from pivot.environments.primitiveskill.state import SkillState
from pivot.environments.primitiveskill.tasks import KINDS, Scene
from pivot.environments.turns import HistoryEntry
from pivot.rollouts.base import render_student
from pivot.rollouts.episode import TaskRun
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.corridor import CorridorConfig, CorridorEnv, CorridorPrompt

ENVS = ("sokoban", "frozenlake")
TASK = Task("t-1", 1, "secret level text", "Do it.")
FRAME = "ab" * 32


def rendered(env: str, frame_id: str = FRAME, t: int = 0, most: int = 1) -> PromptMessages:
    profile = replace(plugins.load("environments", env).profile, actions_per_turn=most)
    return render_student(plugins.load("prompts", env), profile, TASK, t=t, frame_id=frame_id)


def parts(prompt: PromptMessages, kind: str) -> list[dict[str, Any]]:
    return [part for message in prompt.messages for part in message["content"] if part["type"] == kind]


def text_of(prompt: PromptMessages) -> str:
    return "\n".join(part["text"] for part in parts(prompt, "text"))


@pytest.mark.parametrize("env", ENVS)
def test_says_what_the_student_needs(env: str) -> None:
    text = text_of(rendered(env))
    solver = plugins.load("solvers", env)
    legend = importlib.import_module(f"pivot.environments.{env}.sprites").LEGEND
    assert all(re.search(rf"\b{action}\b", text) for action in solver.actions)
    assert all(f"- {thing}: {look}" in text for thing, look in legend.items())
    assert "uses up a turn" in text and "uses up its place in the turn" in text_of(rendered(env, most=3))
    assert "<think>...</think><action>...</action>" in text
    assert TASK.initial_state not in text
    assert "None" not in text and "{" not in text


@pytest.mark.parametrize("env", ENVS)
def test_one_picture_between_two_texts(env: str) -> None:
    prompt = rendered(env)
    assert [message["role"] for message in prompt.messages] == ["user"]
    assert [part["type"] for part in prompt.messages[0]["content"]] == ["text", "image", "text"]
    assert parts(prompt, "image") == [{"type": "image", "frame_id": FRAME}]
    assert (prompt.template, prompt.version) == (f"student.{env}", "1")


@pytest.mark.parametrize("env", ENVS)
def test_hash_is_the_digest_of_the_messages(env: str) -> None:
    prompt = rendered(env)
    assert prompt.prompt_hash == digest(list(prompt.messages))
    assert rendered(env, t=7).prompt_hash == prompt.prompt_hash
    assert rendered(env, frame_id="cd" * 32).prompt_hash != prompt.prompt_hash


@pytest.mark.parametrize("env", ENVS)
def test_a_repeated_frame_is_the_same_object(env: str) -> None:
    kind = plugins.load("environments", env)
    cache = TaskRun(kind, kind.config_type(), TASK, ScriptedPolicy(), plugins.load("prompts", env))
    first = cache.prompt_at(0, FRAME, [], "")
    assert cache.prompt_at(5, FRAME, [HistoryEntry(1, "up")], "") is first
    assert cache.prompt_at(1, "cd" * 32, [], "") is not first
    assert len(cache.prompts) == 2


def test_a_prompt_with_history_is_rendered_for_every_history() -> None:
    cache = TaskRun(CorridorEnv, CorridorConfig(), TASK, ScriptedPolicy(), CorridorPrompt())
    first = cache.prompt_at(0, FRAME, [], "")
    later = cache.prompt_at(2, FRAME, [HistoryEntry(1, "left"), HistoryEntry(2, "right")], "")
    assert "1:left 2:right" in text_of(later)
    assert cache.prompt_at(0, FRAME, [], "at the door").prompt_hash not in (first.prompt_hash, later.prompt_hash)
    assert cache.prompts[later.prompt_hash] is later


PLACES = ((0.0, -100.0, 20.0), (100.0, 50.0, 20.0), (-60.0, 150.0, 20.0))
STACK = SkillState(
    "embedded", "stack", Scene(dict(zip(KINDS["stack"].things, PLACES, strict=True)), None, None), (False,) * 3
).text()


def shown(env: str, *past: str) -> str:
    """Return the text of a prompt after some actions, with a word in place of the picture."""
    observation, instruction = "", "navigate to the Mug"
    if env == "primitiveskill":
        observation = PrimitiveSkillEnv().reset(options={"state": STACK})[1]["observation_text"]
        instruction = KINDS["stack"].instruction
    history = [HistoryEntry(number, action) for number, action in enumerate(past, 1)]
    [message] = plugins.load("prompts", env).render(
        plugins.load("environments", env).profile,
        Task("t-1", 1, "{}", instruction),
        t=len(past),
        frame_id=FRAME,
        history=history,
        observation=observation,
    )
    assert [part["type"] for part in message["content"]] == ["text", "image", "text"]
    text = "\n".join(part.get("text", "<picture>") for part in message["content"])
    assert instruction in text
    return text.replace(instruction, "")


def test_a_prompt_of_navigation_says_what_the_spec_asks_for() -> None:
    text = shown("navigation", "lookup", "moveahead", "rotateright")
    assert all(text.count(action) >= 2 for action in ACTIONS), "listed with its meaning, and at the end"
    assert "step 2: moveahead; step 3: rotateright" in text and "step 1:" not in text
    for part in ("step 4", "<think>...</think><action>...</action>", "1.5 metres", "90 degrees", "30 degrees"):
        assert part in text
    assert "0.5" in text or "half a metre" in text
    first = shown("navigation")
    assert "first step" in first and "step 0" not in first
    assert tuple(action for action in ACTIONS if NavigationEnv().parse_action(action)) == ACTIONS


def test_a_prompt_of_primitiveskill_says_what_the_student_needs() -> None:
    text = shown("primitiveskill")
    for part in (
        *("pick(x,y,z)", "place(x,y,z)", "push(x1,y1,z1,x2,y2,z2)", "This is your first step"),
        *("Workspace limits in mm: x -100 to 150", "[(0,-100,20),(100,50,20),(-60,150,20)]", "sides of 40 mm"),
        "<think>...</think><answer>...</answer>",
    ):
        assert part in text
    assert not any(part in text for part in ("{", "None", "red cube")), "positions have no names"
    text = shown("primitiveskill", "empty", "pick(0,-100,20)", "place(1,2,3)")
    assert "Steps so far: 3. The last ones: step 2: pick(0,-100,20); step 3: place(1,2,3)." in text
    assert "Now comes step 4." in text and "empty" not in text
