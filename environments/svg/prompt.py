"""The acting prompt of SVG reconstruction: the target on the first turn, then also the raster of the last submission.

A turn is a separate request, so the target is repeated with every later picture: a model has no memory of it.
"""

from collections.abc import Sequence
from typing import Any

from ...core.data import load_data
from ..base import EnvProfile, Task
from ..prompts import message
from ..turns import HistoryEntry, StudentPrompt

_TEXTS = load_data(__file__, "prompt.yaml")


class SvgPrompt(StudentPrompt):
    """A prompt that depends on the turn, the current picture, and whether the last reply held a document."""

    template = "student.svg"
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
        """Return one user message: task, target, from the second turn on the canvas, closing instruction."""
        closing = f"{_TEXTS['later' if t else 'first']} {_TEXTS['closing'].format(tag=profile.answer_tag)}"
        before = (f"{_TEXTS['task']}\n{_TEXTS['target']}", history[0].frame_id if history else frame_id)
        if history:
            canvases = _TEXTS["canvas"]
            before += (canvases.get(history[-1].action, canvases["svg"]), frame_id)
        return message(*before, closing)


PROMPT = SvgPrompt()
