"""The acting prompt of gymnasium environments: mission, actions, picture, reply format."""

from collections.abc import Sequence
from typing import Any

from ...solvers.closure.game import Level
from ..base import EnvProfile, Task
from ..prompts import message
from ..turns import HistoryEntry, StudentPrompt


class GymPrompt(StudentPrompt):
    """A prompt that depends on the level's mission and actions, and on the current picture."""

    template = "student.gym"
    version = "1"
    frame_only = True
    hindsight = "before_closing"

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
        """Return one user message: text, the current picture, the closing instruction."""
        names = ", ".join(Level.read(task.initial_state).actions)
        tag = profile.answer_tag
        before = "\n".join(
            (
                "You act in an environment and see a picture of it before every turn.",
                f"Your task: {task.instruction}",
                "",
                "Rules:",
                "- Every turn has exactly one action.",
                "- A reply without a usable action changes nothing and still uses up a turn.",
                "",
                f"Possible actions: {names}.",
                "",
                "The current picture:",
            )
        )
        closing = (
            f"First think about what the picture shows and what the task asks for. Then choose one action: {names}.\n"
            "Reply in exactly this form, with your thoughts and your action in place of the dots:\n"
            f"<think>...</think><{tag}>...</{tag}>"
        )
        return message(before, frame_id, closing)


PROMPT = GymPrompt()
