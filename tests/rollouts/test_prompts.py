"""Check the text of the Student prompts of the two puzzles, and the names and the cache of rendered prompts."""

import importlib
import re
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.identity import digest
from pivot.core.messages import PromptMessages
from pivot.environments.base import Task
from pivot.environments.turns import HistoryEntry
from pivot.rollouts.base import render_student
from pivot.rollouts.episode import TaskRun
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.tests.corridor import CorridorConfig, CorridorEnv, CorridorPrompt

ENVS = ("sokoban", "frozenlake")
TASK = Task("t-1", 1, "secret level text", "Do it.")
FRAME = "ab" * 32


def rendered(env: str, frame_id: str = FRAME, t: int = 0, task: Task = TASK) -> PromptMessages:
    profile = plugins.load("environments", env).profile
    return render_student(plugins.load("prompts", env), profile, task, t=t, frame_id=frame_id)


def parts(prompt: PromptMessages, kind: str) -> list[dict[str, Any]]:
    return [part for message in prompt.messages for part in message["content"] if part["type"] == kind]


def text_of(prompt: PromptMessages) -> str:
    return "\n".join(part["text"] for part in parts(prompt, "text"))


@pytest.mark.parametrize("env", ENVS)
def test_says_what_the_student_needs(env: str) -> None:
    text = text_of(rendered(env))
    solver = plugins.load("solvers", env)
    legend = importlib.import_module(f"pivot.environments.{env}.sprites").LEGEND
    for action in solver.actions:
        assert re.search(rf"\b{action}\b", text), action
    for thing, look in legend.items():
        assert f"- {thing}: {look}" in text
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
