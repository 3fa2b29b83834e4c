"""``pivot settings``: what can be set of a plugin, from its declared settings."""

import json
from typing import Annotated

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from .. import plugins
from ..errors import PluginError
from ..plugins import Settings
from .console import out, show_table

_FLAGS = {
    "environments": "--set {name}.KEY=VALUE",
    "solvers": "--solver {name}.KEY=VALUE",
    "models": "--policy {name}, --teacher {name}",
    "policies": "--policy {name}",
    "writers": "--teacher {name}",
}
"""Groups whose settings a run chooses, and the option that does it."""


def settings(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Environments, models, policies, writers.")
    ] = None,
) -> None:
    """Say what can be set of an environment and its solver, of a model, a policy or a writer: key, type, default, help.

    [bold]Examples[/]

    pivot settings

    pivot settings sokoban
    """
    registered = {name for group in _FLAGS for name in plugins.names(group)}
    for name in names or ():
        if name not in registered:
            raise PluginError(f"unknown plugin {name!r}; registered: {', '.join(sorted(registered))}")
    if not names:
        rows = [[group, ", ".join(plugins.names(group))] for group in _FLAGS]
        show_table("Plugins with settings", ["group", "names"], rows)
        return
    for name in names:
        for group, flag in _FLAGS.items():
            if name in plugins.names(group):
                _show(group, name, flag)


def _show(group: str, name: str, flag: str) -> None:
    member, kind = plugins.GROUPS[group].member, plugins.load(group, name).config_type
    rows = settings_rows(kind)
    if rows:
        show_table(f"{member} {name}: {flag.format(name=name)}", ["key", "type", "default", "what it is"], rows)
    else:
        out.print(f"{member} {name} has no settings")


def settings_rows(kind: type[Settings]) -> list[list[str]]:
    """Return key, type, default and help of every setting."""
    return [
        [
            key,
            _type(field),
            _default(field),
            " ".join((field.description or "").split()),
        ]
        for key, field in kind.model_fields.items()
    ]


def _type(field: FieldInfo) -> str:
    kind = field.annotation
    return (
        kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind).replace("typing.", "")
    )


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    return "needed" if default is PydanticUndefined else json.dumps(to_jsonable_python(default))
