"""The declared settings of plugins, as ``pivot doctor NAME`` shows them."""

import json
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from ..core import plugins
from ..core.errors import PluginError
from .console import out, show_table
from .help_texts import help_text

_FLAGS = {
    "environments": "--set {name}.KEY=VALUE",
    "solvers": "--solver {name}.KEY=VALUE",
    "models": "--policy {name}, --writer {name}",
    "policies": "--policy {name}",
    "writers": "--writer {name}",
    "importers": "pivot import SOURCE --format {name} --option KEY=VALUE",
    "objectives": "--opd-objective {name} --objective-set KEY=VALUE",
    "advantages": "--advantages {name} --advantages-set KEY=VALUE",
}
"""Groups whose settings belong to a run, with their option."""


def show_settings(names: Sequence[str]) -> None:
    """Show the settings of plugins.

    Raises:
        PluginError: there is none of a name.
    """
    registered = {name for group in _FLAGS for name in plugins.names(group)}
    for name in names:
        if name not in registered:
            raise PluginError(f"unknown plugin {name!r}; registered: {', '.join(sorted(registered))}")
    for name in names:
        for group, flag in _FLAGS.items():
            if name in plugins.names(group):
                _show(group, name, flag)


def _show(group: str, name: str, flag: str) -> None:
    member, kind = plugins.GROUPS[group].member, plugins.load(group, name).config_type
    rows = [[*row, help_text(text, {})] for *row, text in settings_rows(kind)]
    if rows:
        show_table(f"{member} {name}: {flag.format(name=name)}", ["key", "type", "default", "what it is"], rows)
    else:
        out.print(f"{member} {name} has no settings")


def settings_rows(kind: type[BaseModel]) -> list[list[str]]:
    """Return key, type, default and help of every setting."""
    return [
        [key, type_text(field), default_text(field), " ".join((field.description or "").split())]
        for key, field in kind.model_fields.items()
    ]


def type_text(field: FieldInfo) -> str:
    """Name what a setting may be: its type in words, and its limits."""
    limits = {type(limit): limit for limit in field.metadata}
    low, high = limits.get(Ge), limits.get(Le)
    if low is not None and high is not None:
        return f"{_words(field.annotation)}, {low.ge} to {high.le}"
    signs = ((Gt, "gt", ">"), (Ge, "ge", ">="), (Lt, "lt", "<"), (Le, "le", "<="))
    bounds = [f"{sign} {getattr(limits[kind], name)}" for kind, name, sign in signs if kind in limits]
    return " ".join([_words(field.annotation), *bounds])


def _words(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin in (Union, UnionType):
        named = [_words(part) for part in parts if part is not NoneType]
        return " or ".join([*named, *(["null"] if NoneType in parts else [])])
    if origin in (tuple, list):
        return f"list of {_words(parts[0])}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "object"
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


_NAMES: dict[Any, str] = {str: "text", bool: "true or false", int: "int", float: "float", dict: "object"}


def default_text(field: FieldInfo) -> str:
    """Return the default of a setting as JSON."""
    default = field.get_default(call_default_factory=True)
    return "required" if default is PydanticUndefined else json.dumps(to_jsonable_python(default))
