"""The acting prompt."""

from collections.abc import Sequence
from typing import Any

from pivot.plugin import EnvProfile, HistoryEntry, StudentPrompt, Task


class CorridorPrompt(StudentPrompt):
    """Task, picture, how to answer."""

    template = "student.corridor"
    version = "1"
    frame_only = True

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
        """Return the messages of one turn; see the base class."""
        del t, history, observation
        tag = profile.answer_tag
        answer = f"Think between <think> and </think>, then answer <{tag}>left</{tag}> or <{tag}>right</{tag}>."
        content = [
            {"type": "text", "text": f"{task.instruction} You are blue, the goal is golden, a pit is black."},
            {"type": "image", "frame_id": frame_id},
            {"type": "text", "text": answer},
        ]
        return ({"role": "user", "content": content},)


PROMPT = CorridorPrompt()
