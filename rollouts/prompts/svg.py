"""The acting prompt of SVG reconstruction: the target on the first turn, the raster of the last submission after that.

The target is not shown again; the conversation is one request a turn, so the later prompts say what the first showed and
that every submission starts from an empty canvas.
"""

from collections.abc import Sequence
from typing import Any

from ...environments.base import EnvProfile, Task
from ..base import HistoryEntry, StudentPrompt

_TASK = """\
You write SVG code. A target picture is given, and your code is to reproduce it: it is drawn at 256x256 pixels on white \
and compared with the target, pixel structure and look together, with a score from 0 to 1.

Rules:
- Each turn you submit one complete document, from <svg> to </svg>; it replaces the one before.
- Give it a viewBox, the xmlns http://www.w3.org/2000/svg, and nothing from outside: no links, scripts, fonts or pictures.
- Use the shapes that fit: path, circle, ellipse, rect, line, polyline, polygon, gradients, groups with transforms.
- A document that cannot be drawn, or a reply without one, scores 0 and uses up the turn.

Look first for the parts of the target, then for their colours, sizes and places, and for what covers what.
"""

_FIRST = "The target:"
_LATER = {
    "svg": "You have seen the target. What you submitted last turn looks like this:",
    "empty": "You have seen the target. Your last reply held no document; the canvas still looks like this:",
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
        """Return one user message: the task, the current picture, the closing instruction."""
        tag = profile.answer_tag
        shown = _LATER.get(history[-1].action, _LATER["svg"]) if t else _FIRST
        wish = "Submit a better reproduction of the target" if t else "Reproduce it as exactly as you can"
        closing = (
            f"{wish}. Think first, then answer in exactly this form, your thoughts and your document in place of the "
            f"dots:\n<think>...</think><{tag}><svg ...>...</svg></{tag}>"
        )
        content = [
            {"type": "text", "text": f"{_TASK}\n{shown}"},
            {"type": "image", "frame_id": frame_id},
            {"type": "text", "text": closing},
        ]
        return ({"role": "user", "content": content},)


PROMPT = SvgPrompt()
