"""The policy ``scripted``: it passes every turn to the player of its environment."""

from typing import Any, ClassVar

from pydantic import Field

from ...core import plugins
from ...core.plugins import Settings
from ...environments.base import EnvConfig
from ...environments.grid_player import GridPlayer
from ...environments.turns import Player, Reply, Turn
from ..base import Policy

VERSION = "1"
"""Raised when all players change: replies, and therefore episode ids, then differ. A change of one player raises the
version of that player."""


class ScriptedSettings(Settings):
    """Settings of the stand-in."""

    habits: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    """Changed habits: environment, name of the habit, number."""


class ScriptedPolicy(Policy):
    """The stand-in for a model; environments without a player are played by exact distances."""

    name = "scripted"
    is_stand_in: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = ScriptedSettings
    settings: ScriptedSettings

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """Create the players with changed habits, so that invalid settings are reported at once.

        Raises:
            ConfigError: an unknown field, or a number out of range.
        """
        super().__init__(settings, **values)
        self._players: dict[str, Player] = {}
        for env in self.settings.habits:
            self._player(env)

    @property
    def config(self) -> dict[str, Any]:
        """Return version and changed habits: everything that decides the replies.

        The version stands for the default habits, so that a new environment does not change the ids of the others.
        """
        return {"version": VERSION, "habits": self.settings.habits}

    def config_for(self, env: str) -> dict[str, Any]:
        """Return the config with the version of the environment's player, if that is not 1."""
        version = self._player(env).version
        return self.config if version == "1" else {**self.config, "player": version}

    def check_environment(self, env: str, config: EnvConfig) -> None:
        """Check that the player of an environment supports these settings; see the base class."""
        self._player(env).check(config)

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the same turn always gets the same answer.

        Raises:
            ConfigError: the environment has no player, and its solver offers no distances to play by.
        """
        return self._player(turn.env.profile.name).reply(turn)

    def _player(self, env: str) -> Player:
        if env not in self._players:
            kind: type[Player] = plugins.load("players", env) if env in plugins.names("players") else GridPlayer
            self._players[env] = kind(env, self.settings.habits.get(env, {}))
        return self._players[env]
