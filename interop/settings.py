"""Environments of imported episodes: their settings, and what a line of a source may ask for."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..core import admission
from ..core.errors import ConfigError, PivotError, PluginError
from ..core.identity import canonical_json
from ..datasets.store.config import env_config, environment
from ..environments.base import EnvConfig, PivotEnv
from ..rollouts.policies.imported import LeftOut
from .chat import ChatSettings
from .episode import RecordedEpisode
from .levels import LeftOutError

_ARGUMENTS = ("kwargs", "options")
"""Settings that a foreign environment gets unchanged, such as the size of its level."""
_MOST_CHARACTERS, _LARGEST_NUMBER = 8192, 100
_NO_SIZES = frozenset({"max_steps", "screen_size"})
"""Arguments that may be larger numbers."""


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
    _refuse_large(config, replaced)
    return kind, config


def _refuse_large(config: EnvConfig, replaced: Mapping[str, Any]) -> None:
    """Refuse arguments of a line that could make an environment of any size."""
    for name in _ARGUMENTS:
        values = None if name in replaced else getattr(config, name, None)
        if not isinstance(values, Mapping):
            continue
        length, largest = len(canonical_json(values)), max(map(abs, _numbers(values)), default=0)
        if length > _MOST_CHARACTERS or largest > _LARGEST_NUMBER:
            raise LeftOutError(
                LeftOut.SETTINGS,
                f"{name} have {length} characters and numbers to {largest:g}, expected at most {_MOST_CHARACTERS} and "
                f"{_LARGEST_NUMBER}; name them with --set if you trust the source",
            )


def _numbers(value: Any) -> Iterator[float]:
    """Yield the numbers in JSON data, but for those of ``_NO_SIZES``."""
    if isinstance(value, Mapping):
        value = [each for name, each in value.items() if name not in _NO_SIZES]
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


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
    if kind.actions and (odd := sorted({*options.vocabulary.values()} - {*kind.actions})):
        raise ConfigError(
            f"option words: found the action {odd[0]!r}, expected one of {', '.join(kind.actions)}, as in "
            f"words={kind.actions[0]}:north"
        )
