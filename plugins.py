"""Find environments, solvers, policies, players, teachers, prompts and filters by name through entry points.

PIVOT's own parts are registered exactly like a third party's (``pyproject.toml``), so adding one is a new file and one
line. A plugin that is unknown or fails to import raises :class:`~pivot.errors.PluginError` with the reason.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import PluginError

GROUPS = ("environments", "solvers", "policies", "players", "prompts", "teachers", "filters")


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=f"pivot.{group}"), key=lambda point: point.name)}


def names(group: str) -> list[str]:
    """List the registered names of one group, sorted."""
    return list(_entry_points(group))


def _member(group: str) -> str:
    """What one member of a group is called."""
    return "policy" if group == "policies" else group[:-1]


@cache
def load(group: str, name: str) -> Any:
    """Import and return the object registered as ``name`` in ``group``.

    Raises:
        PluginError: the name is not registered, or importing it failed.
    """
    points = _entry_points(group)
    if name not in points:
        known = ", ".join(points) or "none; reinstall the package so that its entry points are registered"
        raise PluginError(f"unknown {_member(group)} {name!r}; registered: {known}")
    point = points[name]
    try:
        return point.load()
    except Exception as error:
        owner = point.dist.name if point.dist else "an unknown distribution"
        raise PluginError(
            f"{_member(group)} {name!r} ({point.value}, from {owner}) failed to import: "
            f"{type(error).__name__}: {error}; fix or uninstall that package"
        ) from error
