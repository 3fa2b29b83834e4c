"""The policy ``mixed``: several kinds of scripted players in known shares, one kind per episode.

The kind of an episode is a function of its id, so it can be named later without any record of it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...core.errors import ConfigError
from ...core.identity import derive_seed
from ...core.plugins import Settings
from ...environments.base import EnvConfig
from ...environments.turns import Reply, Turn
from ..base import Policy
from .scripted import ScriptedPolicy


class MixedSettings(Settings):
    """Kinds of players."""

    weights: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Kinds by name, at least one, each with the share of the episodes that it plays, relative to the others."""
    habits: dict[str, dict[str, dict[str, int | float]]] = Field(default_factory=dict)
    """Changed habits: kind, environment, name of the habit, number."""


class MixedPolicy(Policy):
    """Scripted players of several kinds; each plays its episodes as :class:`.ScriptedPolicy` with its habits does."""

    name = "mixed"
    is_stand_in: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = MixedSettings
    settings: MixedSettings

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """Create the players, so that invalid settings are reported at once.

        Raises:
            ConfigError: an unknown field or kind, or a number out of range.
        """
        super().__init__(settings, **values)
        weights, habits = self.settings.weights, self.settings.habits
        if unknown := sorted(habits.keys() - weights.keys()):
            raise ConfigError(
                f"policy mixed, habits: found kind {unknown[0]!r}, expected one with a weight: {', '.join(weights)}"
            )
        self._policies: Mapping[str, ScriptedPolicy] = {
            name: ScriptedPolicy(habits=habits.get(name, {})) for name in weights
        }

    @property
    def config(self) -> dict[str, Any]:
        """Return weight and config of every kind."""
        return self._config(lambda policy: policy.config)

    def config_for(self, env: str) -> dict[str, Any]:
        """Return weight and config of every kind in one environment; see the base class."""
        return self._config(lambda policy: policy.config_for(env))

    def _config(self, config_of: Any) -> dict[str, Any]:
        weights = self.settings.weights
        kinds = {name: {"weight": weights[name], **config_of(each)} for name, each in self._policies.items()}
        return {"kinds": kinds}

    def check(self) -> None:
        """Check that there is a kind.

        Raises:
            ConfigError: no kind is given.
        """
        if not self._policies:
            raise ConfigError(
                "policy mixed: found no kinds, expected at least one; name them in policy.options.weights"
            )

    def check_environment(self, env: str, config: EnvConfig) -> None:
        """Check that the players support these settings; see the base class."""
        self.check()
        for policy in self._policies.values():
            policy.check_environment(env, config)

    def kind_of(self, episode_id: str) -> str:
        """Return the kind of player of an episode."""
        weights = self.settings.weights
        left = derive_seed("kind of player", episode_id) / 2**63 * sum(weights.values())
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        return next(reversed(weights))

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn by the episode's kind of player.

        Raises:
            ConfigError: an environment has no player, and its solver offers no distances to play by.
        """
        return await self._policies[self.kind_of(turn.episode_id)].reply(turn)
