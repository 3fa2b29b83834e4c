"""The policy of a store that a training run left: its replies are in the rows and nowhere else."""

from typing import Any, ClassVar

from pydantic import Field

from ...errors import ConfigError
from ...plugins import Settings
from ..base import Policy, Reply, Turn

NAME = "trained"
"""Of the policy column, whichever engine generated the replies."""


class TrainedSettings(Settings):
    """Which model it was."""

    config: dict[str, Any] = Field(default_factory=dict)
    """Of the policy when it first played: model, run, updates done, sampling."""


class TrainedPolicy(Policy):
    """A model in training; its weights of that moment are gone, so what it played can be read but not played again."""

    name = NAME
    config_type: ClassVar[type[Settings]] = TrainedSettings
    settings: TrainedSettings

    @property
    def config(self) -> dict[str, Any]:
        """As the first rows tell it."""
        return self.settings.config

    async def reply(self, turn: Turn) -> Reply:
        """Refuse.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"episode {turn.episode_id} was to be played by a model as it was during its training, which nobody has "
            "any more; play with a checkpoint of that run instead: --policy transformers --model RUN/final"
        )
