"""The acting prompt of tasks with a history, whose texts are data."""

from collections.abc import Mapping, Sequence
from typing import Any

from .base import EnvProfile, Task
from .prompts import message
from .turns import HistoryEntry, StudentPrompt

SHOWN_ACTIONS = 2
"""Number of past actions that a prompt shows."""


class HistoryPrompt(StudentPrompt):
    """A prompt that depends on the turn, the last two actions, the current picture and the text observation."""

    def __init__(self, template: str, version: str, texts: Mapping[str, str]) -> None:
        """Fill in the texts of one environment: ``task``, ``view`` (announces the picture) and ``closing``."""
        self.template, self.version, self._texts = template, version, texts

    def render(
        self,
        profile: EnvProfile,
        task: Task,
        *,
        t: int,
        frame_id: str,
        history: Sequence[HistoryEntry],
        observation: str,
    ) -> tuple[dict[str, Any], ...]:
        """Return one user message: task and history, the current picture, the closing instruction."""
        texts = self._texts
        recent = "; ".join(f"step {entry.step}: {entry.action}" for entry in history[-SHOWN_ACTIONS:])
        past = f"Steps so far: {t}. The last ones: {recent}." if history else "This is your first step."
        ask = texts["task"].format(instruction=task.instruction)
        closing = texts["closing"].format(tag=profile.answer_tag, observation=observation)
        return message(f"{ask}\n{past}\nNow comes step {t + 1}. {texts['view']}", frame_id, closing)
