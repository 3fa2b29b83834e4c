"""The corridor's player of the stand-in ``scripted``: it strolls, and some of its replies have no usable action."""

from typing import ClassVar

from pivot.plugin import Player, PlayerHabits, Reply, Turn, uniforms
from pydantic import Field


class StrollerHabits(PlayerHabits):
    """Settings of the stroller."""

    right: float = Field(default=0.5, ge=0, le=1)
    """Chance to walk right."""
    mumbling: float = Field(default=0.1, ge=0, le=1)
    """Chance of a reply without an action."""


class Stroller(Player):
    """Left or right by chance."""

    config_type: ClassVar[type[PlayerHabits]] = StrollerHabits
    settings: StrollerHabits

    def reply(self, turn: Turn) -> Reply:
        """Answer one turn; see the base class."""
        draws, tag = uniforms(turn.seed), turn.env.profile.answer_tag
        if draws[0] < self.settings.mumbling:
            return Reply("<think>Which way?</think>")
        return Reply(f"<think>A stroll.</think><{tag}>{'right' if draws[1] < self.settings.right else 'left'}</{tag}>")
