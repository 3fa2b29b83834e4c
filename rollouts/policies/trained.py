"""The policy of a training run's store: its replies exist only in the rows."""

from typing import Any, ClassVar

from pydantic import Field

from ...core.errors import ConfigError
from ...core.plugins import Settings
from ...environments.turns import Reply, Turn
from ..base import Policy

NAME = "trained"
"""Name in the policy column, for any generation engine."""


class TrainedSettings(Settings):
    """Identity of the model."""

    config: dict[str, Any] = Field(default_factory=dict)
    """Config of the policy at its first rollouts: model, run, number of updates, sampling."""


class TrainedPolicy(Policy):
    """A model in training. Its weights at that time are gone, so its episodes can be read but not repeated."""

    name = NAME
    config_type: ClassVar[type[Settings]] = TrainedSettings
    settings: TrainedSettings

    @property
    def config(self) -> dict[str, Any]:
        """Return the config stored with the first rows."""
        return self.settings.config

    async def reply(self, turn: Turn) -> Reply:
        """Raise an error: the weights are gone.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"episode {turn.episode_id} needs the model as it was during its training, whose weights were not "
            "kept; play with a checkpoint of that run instead: --policy transformers --model RUN/final"
        )
