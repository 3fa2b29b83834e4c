"""Environments of imported episodes: their settings, and what a line of a source may ask for."""

from collections.abc import Mapping
from typing import Any

from ..datasets.config import env_config, environment
from ..environments.base import EnvConfig, PivotEnv
from ..errors import ConfigError, PivotError, PluginError
from ..rollouts.policies.imported import LeftOut
from .episode import RecordedEpisode
from .levels import LeftOutError


def settings_of(episode: RecordedEpisode, replaced: Mapping[str, Any]) -> tuple[type[PivotEnv], EnvConfig]:
    """Return the environment of an episode and its settings; values in ``replaced``, of the user, come first.

    Raises:
        LeftOutError: the environment is unknown, or a line may not ask for these settings.
    """
    try:
        chosen = {**episode.env_config, **replaced}
        config = env_config(episode.env, chosen)
        kind = environment(episode.env)
    except PluginError as error:
        raise LeftOutError(LeftOut.ENVIRONMENT, str(error)) from error
    except ConfigError as error:
        raise LeftOutError(LeftOut.SETTINGS, str(error)) from error
    if config.locations & chosen.keys() or config.loads_from_elsewhere is not None:
        raise LeftOutError(LeftOut.SETTINGS, "its settings name a folder or file, which no import reads")
    return kind, config


def made(kind: type[PivotEnv], config: EnvConfig) -> PivotEnv:
    """Return an environment with the settings of an episode.

    Raises:
        LeftOutError: it cannot be made with them.
    """
    try:
        return kind(config)
    except PivotError as error:
        raise LeftOutError(LeftOut.SETTINGS, str(error)) from error
