"""The common acting prompt of the grid puzzles: task, legend, rules, actions, picture, reply format.

The reply format follows the picture: a Teacher's hindsight context goes between the two.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .base import EnvProfile, Task
from .turns import HistoryEntry, StudentPrompt

MOVES = ("up", "down", "left", "right")


class GridPrompt(StudentPrompt):
    """A prompt that depends on the current picture alone."""

    frame_only = True
    hindsight = "before_closing"

    def __init__(
        self, *, template: str, version: str, task: str, legend: Mapping[str, str], rules: Sequence[str], thinking: str
    ) -> None:
        """Fill in the texts of one environment.

        Args:
            template: name of the template.
            version: raised with every change of wording.
            task: description of the task, in whole sentences.
            legend: look of each object in the picture.
            rules: rules of the environment, in whole sentences.
            thinking: object of "think about".
        """
        self.template = template
        self.version = version
        lines = [
            task,
            "",
            "In the picture:",
            *(f"- {thing}: {look}" for thing, look in legend.items()),
            "",
            "Rules:",
            *(f"- {rule}" for rule in rules),
            "",
        ]
        self._before = "\n".join(lines)
        self._thinking = thinking

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
        tag, most = profile.answer_tag, profile.actions_per_turn
        chosen, noun, each_turn = "one action", "action", "one a turn"
        if most > 1:
            chosen, noun = f"one to {most} actions, separated by commas", "actions"
            each_turn = f"one to {most} a turn, and they are taken in this order"
        choices = f"\nPossible actions: {', '.join(MOVES)}. You choose {each_turn}.\n\nThe current picture:"
        closing = (
            f"First think about {self._thinking}. Then choose {chosen}: {', '.join(MOVES)}.\n"
            f"Reply in exactly this form, with your thoughts and your {noun} in place of the dots:\n"
            f"<think>...</think><{tag}>...</{tag}>"
        )
        content = [
            {"type": "text", "text": self._before + choices},
            {"type": "image", "frame_id": frame_id},
            {"type": "text", "text": closing},
        ]
        return ({"role": "user", "content": content},)
