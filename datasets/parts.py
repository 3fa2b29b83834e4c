"""Build the exchangeable parts that a config names: policy, teacher, filters."""

from typing import Any

from .. import plugins
from ..errors import ConfigError
from ..labeling.base import Filter, Teacher
from ..rollouts.base import Policy
from .config import PartConfig


def make_policy(part: PartConfig) -> Policy:
    """Build the policy that a config names.

    Raises:
        PluginError, ConfigError: it is unknown, or its options are.
    """
    return _make("policies", part)


def make_teacher(part: PartConfig) -> Teacher:
    """Build the teacher that a config names; the same errors as :func:`make_policy`."""
    return _make("teachers", part)


def make_filters() -> list[Filter]:
    """Build every registered filter, in the order of their names."""
    return [plugins.load("filters", name)() for name in plugins.names("filters")]


def _make(group: str, part: PartConfig) -> Any:
    kind = plugins.load(group, part.name)
    try:
        service = part.service if kind.served else {}
        return kind(**part.options, **service)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"options of {part.name!r} cannot be used: {error}; found {part.options}") from error
