"""The policy behind the stand-in: hands every turn to the player of its environment."""

from typing import Any, ClassVar

from pydantic import Field

from ... import plugins
from ...environments.base import EnvConfig
from ...plugins import Settings
from ..base import Policy, Reply, Turn
from .grid import GridPlayer
from .player import Player

VERSION = "1"
"""Goes up when something about all players changes: the replies, and so the episode ids, are then others. What changes
the replies of one player raises that player's own version."""


class ScriptedSettings(Settings):
    """Settings of the stand-in."""

    habits: dict[str, dict[str, int | float]] = Field(default_factory=dict)
    """Changed habits: environment, field of its player, number."""


class ScriptedPolicy(Policy):
    """The stand-in; an environment without a player of its own is played by exact distances."""

    name = "scripted"
    is_stand_in: ClassVar[bool] = True
    config_type: ClassVar[type[Settings]] = ScriptedSettings
    settings: ScriptedSettings

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """Make the players whose habits are changed, so that a mistake is found at once.

        Raises:
            ConfigError: an unknown field, or a number out of range.
        """
        super().__init__(settings, **values)
        self._players: dict[str, Player] = {env: self._make_player(env) for env in self.settings.habits}

    @property
    def config(self) -> dict[str, Any]:
        """Version and changed habits: all that decides the replies.

        The default habits go with the version, so that a new environment's habits leave the ids of the others alone.
        """
        return {"version": VERSION, "habits": self.settings.habits}

    def config_for(self, env: str) -> dict[str, Any]:
        """Name the version of the environment's player, too, from its second on: other ids for other replies."""
        version = self._player(env).version
        return self.config if version == "1" else {**self.config, "player": version}

    def check_environment(self, env: str, config: EnvConfig) -> None:
        """See whether the player of an environment can play with these settings; see the base class."""
        self._player(env).check(config)

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the same turn always gets the same answer.

        Raises:
            ConfigError: the environment has no player, and its solver offers no distances to play by.
        """
        return self._player(turn.env.profile.name).reply(turn)

    def _player(self, env: str) -> Player:
        if env not in self._players:
            self._players[env] = self._make_player(env)
        return self._players[env]

    def _make_player(self, env: str) -> Player:
        kind: type[Player] = plugins.load("players", env) if env in plugins.names("players") else GridPlayer
        return kind(env, self.settings.habits.get(env, {}))
