"""The acting prompt of navigation: instruction, actions, the last two actions as text, and the current view.

Steps are counted from 1 here, as in every history that a model reads; everywhere else they count from 0.
"""

from collections.abc import Sequence
from typing import Any

from ..base import EnvProfile, Task
from ..turns import HistoryEntry, StudentPrompt

ACTIONS = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
SHOWN_ACTIONS = 2

_TASK = """\
You are inside a furnished room and see it through your own eyes. You were asked for something in it, and have to walk
there. You only have a few turns for it.

What you were asked: {instruction}

Rules:
- You have arrived when you are within 1.5 metres of the thing, measured along the floor; the attempt then ends.
- A move that would bump into furniture or a wall does not happen at all, and still uses up a turn.
- Steps to the side and back keep your view: you need not turn in order to walk.
- The thing may be behind you or hidden by something: turn around if you cannot see it.

Possible actions. You choose one a turn:
- moveahead, moveback, moveright, moveleft: walk half a metre, seen from where you look
- rotateright, rotateleft: turn by 90 degrees
- lookup, lookdown: tilt your view by 30 degrees
"""


class NavigationPrompt(StudentPrompt):
    """A prompt that depends on the turn, the last two actions and the current view."""

    template = "student.navigation"
    version = "1"

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
        """Return one user message: task and history, the current view, the closing instruction."""
        tag = profile.answer_tag
        recent = "; ".join(f"step {entry.step}: {entry.action}" for entry in history[-SHOWN_ACTIONS:])
        past = f"Steps so far: {t}. The last ones: {recent}." if history else "This is your first step."
        before = f"{_TASK.format(instruction=task.instruction)}\n{past}\nNow comes step {t + 1}. What you see:"
        closing = (
            "First think about where the thing is or could be, how far away it looks, and what stands in your way. "
            f"Then choose one action: {', '.join(ACTIONS)}.\n"
            "Reply in exactly this form, with your thoughts and your action in place of the dots:\n"
            f"<think>...</think><{tag}>...</{tag}>"
        )
        content = [
            {"type": "text", "text": before},
            {"type": "image", "frame_id": frame_id},
            {"type": "text", "text": closing},
        ]
        return ({"role": "user", "content": content},)


PROMPT = NavigationPrompt()
