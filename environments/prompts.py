"""The acting prompt of the puzzles, whose texts are data."""

from collections.abc import Mapping, Sequence
from typing import Any

from .base import EnvProfile, Task
from .grid import ACTIONS
from .turns import HistoryEntry, StudentPrompt


class GridPrompt(StudentPrompt):
    """A prompt of a puzzle, which depends on the current picture alone.

    The reply format follows the picture: a Teacher's hindsight context goes between the two.
    """

    frame_only = True
    hindsight = "before_closing"

    def __init__(self, template: str, version: str, legend: Mapping[str, str], texts: Mapping[str, Any]) -> None:
        """Fill in the texts of one environment.

        Args:
            template: name of the template.
            version: raised with every change of wording.
            legend: look of each object in the picture.
            texts: ``task`` and ``rules``, in whole sentences, with ``{turn}`` for what a move uses up; ``thinking``,
                the object of "think about".
        """
        self.template, self.version, self._thinking = template, version, texts["thinking"]
        looks = [f"- {thing}: {look}" for thing, look in legend.items()]
        rules = [f"- {rule}" for rule in texts["rules"]]
        self._before = "\n".join([texts["task"], "", "In the picture:", *looks, "", "Rules:", *rules, ""])

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
        tag, most, moves = profile.answer_tag, profile.actions_per_turn, ", ".join(ACTIONS)
        chosen, noun, each_turn, turn = "one action", "action", "one a turn", "a turn"
        if most > 1:
            chosen, noun = f"one to {most} actions, separated by commas", "actions"
            each_turn, turn = f"one to {most} a turn, and they are taken in this order", "its place in the turn"
        choices = f"\nPossible actions: {moves}. You choose {each_turn}.\n\nThe current picture:"
        closing = (
            f"First think about {self._thinking}. Then choose {chosen}: {moves}.\n"
            f"Reply in exactly this form, with your thoughts and your {noun} in place of the dots:\n"
            f"<think>...</think><{tag}>...</{tag}>"
        )
        return message(self._before.replace("{turn}", turn) + choices, frame_id, closing)


def message(*content: str) -> tuple[dict[str, Any], ...]:
    """Return one user message of a text, a frame id, a text and so on in turns."""
    parts = (
        {"type": "text", "text": each} if number % 2 == 0 else {"type": "image", "frame_id": each}
        for number, each in enumerate(content)
    )
    return ({"role": "user", "content": list(parts)},)
