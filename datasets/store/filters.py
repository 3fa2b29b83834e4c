"""Names of the filters that judge the labels of each environment."""

from ...core import plugins
from ...labeling.base import Filter


def filter_type(name: str) -> type[Filter]:
    """Load a filter.

    Raises:
        PluginError: the filter is unknown or cannot be used.
    """
    return plugins.load("filters", name)


def default_filters(env: str) -> tuple[str, ...]:
    """Return the names of the installed filters that judge an environment, sorted.

    Raises:
        PluginError: a filter cannot be used.
    """
    judged = {name: filter_type(name).environments for name in plugins.names("filters")}
    return tuple(name for name, environments in judged.items() if environments is None or env in environments)
