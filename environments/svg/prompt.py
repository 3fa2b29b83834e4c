"""The acting prompt of SVG reconstruction: the target on the first turn, then also the raster of the last submission.

A turn is a separate request, so the target is repeated with every later picture: a model has no memory of it.
"""

from collections.abc import Sequence
from typing import Any

from ..base import EnvProfile, Task
from ..turns import HistoryEntry, StudentPrompt

_TASK = """\
You write SVG code. A target picture is given, and your code is to reproduce it. It is drawn at 256x256 pixels on white
and compared with the target; the score goes from 0 to 1.

Rules:
- Each turn you submit one complete document, from <svg> to </svg>; it replaces the one before.
- Give it a viewBox and the xmlns http://www.w3.org/2000/svg. Refer to nothing outside it: no links, scripts, fonts or
  pictures.
- Use the shapes that fit: path, circle, ellipse, rect, line, polyline, polygon, gradients, groups with transforms.
- A document that cannot be drawn, or a reply without one, scores 0 and uses up the turn.

Look first for the parts of the target, then for their colours, sizes and places, and for what covers what.
"""

_TARGET = "The target:"
_CANVAS = {
    "svg": "The canvas after your last submission:",
    "empty": "Your last reply held no document. The canvas:",
}


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
        tag = profile.answer_tag
        wish = "Submit a better reproduction of the target." if t else "Reproduce it as exactly as you can."
        closing = (
            f"{wish} Think first, then answer in exactly this form, with your thoughts and your document in place of "
            f"the dots:\n<think>...</think><{tag}><svg ...>...</svg></{tag}>"
        )
        target = history[0].frame_id if history else frame_id
        content = [{"type": "text", "text": f"{_TASK}\n{_TARGET}"}, {"type": "image", "frame_id": target}]
        if history:
            canvas = _CANVAS.get(history[-1].action, _CANVAS["svg"])
            content += [{"type": "text", "text": canvas}, {"type": "image", "frame_id": frame_id}]
        content.append({"type": "text", "text": closing})
        return ({"role": "user", "content": content},)


PROMPT = SvgPrompt()
