"""Environments of imported episodes: their settings, and what a line of a source may ask for."""

from collections.abc import Mapping
from typing import Any

from ..core import admission
from ..core.errors import ConfigError, PivotError, PluginError
from ..datasets.store.config import env_config, environment
from ..environments.base import EnvConfig, NamedActions, PivotEnv
from ..rollouts.policies.imported import LeftOut
from .chat import ChatSettings
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
    if config.locations & chosen.keys():
        raise LeftOutError(LeftOut.SETTINGS, "its settings name a folder or file, which no import reads")
    if refused := admission.missing(config.code):
        raise LeftOutError(LeftOut.SETTINGS, admission.refusal(refused))
    return kind, config


def made(kind: type[PivotEnv], config: EnvConfig) -> PivotEnv:
    """Return an environment with the settings of an episode.

    Raises:
        LeftOutError: the environment cannot be made with these settings.
    """
    try:
        return kind(config)
    except PivotError as error:
        raise LeftOutError(LeftOut.SETTINGS, str(error)) from error


def check_options(options: Any, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what no episode can use, once and before reading.

    Raises:
        ConfigError, PluginError: an environment is unknown, or one of its settings cannot be used.
    """
    for name, values in settings.items():
        fields = environment(name).config_type.model_fields
        missing = [each for each, field in fields.items() if field.is_required() and each not in values]
        if not missing or not values.keys() <= fields.keys():
            env_config(name, values)
    if not isinstance(options, ChatSettings) or not options.env:
        return
    kind = environment(options.env)
    if issubclass(kind, NamedActions) and (odd := sorted({*options.vocabulary.values()} - {*kind.actions})):
        raise ConfigError(
            f"option words: found the action {odd[0]!r}, expected one of {', '.join(kind.actions)}, as in "
            f"words={kind.actions[0]}:north"
        )
