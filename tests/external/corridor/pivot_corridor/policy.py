"""A policy of one's own: it walks with closed eyes, in any environment whose actions are left and right."""

from typing import Any, ClassVar

from pivot.plugin import Policy, Reply, Settings, Turn
from pydantic import Field


class SleepwalkerSettings(Settings):
    """Settings of the sleepwalker."""

    right: float = Field(default=0.7, ge=0, le=1)
    """Chance to walk right."""


class Sleepwalker(Policy):
    """Answers without a look."""

    name = "sleepwalker"
    is_stand_in: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = SleepwalkerSettings
    settings: SleepwalkerSettings

    @property
    def config(self) -> dict[str, Any]:
        """Version and settings decide every reply."""
        return {"version": "1", **self.settings.model_dump()}

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn: all chance comes from the turn's seed."""
        tag = turn.env.profile.answer_tag
        way = "right" if turn.seed % 1000 < 1000 * self.settings.right else "left"
        return Reply(f"<think>zzz</think><{tag}>{way}</{tag}>")
