"""Help on the screen: descriptions of fields as help texts, placeholders of values, and commands that show both."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ..core.storage import Url

_CODE = re.compile(r"``([^`]+)``|`([^`]+)`")
Parameter = TypeVar("Parameter")
Function = TypeVar("Function", bound=Callable[..., Any])


def help_text(description: str, options: Mapping[str, str]) -> str:
    """Return the first paragraph of a field's description as help: one line without backticks.

    Later paragraphs are about stored files and are shown in the reference alone.

    Args:
        description: the text, with code in backticks.
        options: how the user types each field; a field in backticks becomes its option.
    """
    paragraph = " ".join(description.strip().split("\n\n")[0].split())
    return _CODE.sub(lambda code: options.get(code[1] or code[2], code[1] or code[2]), paragraph)


def without_none(kind: Any) -> tuple[Any, bool]:
    """Return an annotation without ``None``, and whether it had one."""
    if get_origin(kind) is Annotated:
        return without_none(get_args(kind)[0])
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    kinds = [each for each in get_args(kind) if each is not NoneType]
    return (kinds[0] if len(kinds) == 1 else Union[tuple(kinds)]), len(kinds) < len(get_args(kind))  # noqa: UP007


def metavar_of(kind: Any) -> str:
    """Return the placeholder of a value in the help: ``INTEGER``, or the choices; empty for a flag."""
    kind = without_none(kind)[0]
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return f"[{'|'.join(map(str, get_args(kind)))}]"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"[{'|'.join(str(each.value) for each in kind)}]"
    if get_origin(kind) in (tuple, list, set, frozenset):
        return metavar_of(get_args(kind)[0])
    if kind in (Path, Url) or Path in get_args(kind):
        return "PATH"
    return {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")


class Argument(TyperArgument):
    """An argument whose help shows its placeholder instead of its Python type."""

    def display_type_rich(self, ctx: Any) -> str | None:
        """Return an empty type, because the placeholder describes it."""
        return None

    def get_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the placeholder as the usage line shows it; one that ends in ``...`` may be repeated."""
        return [self.display_name_raw if self.required else f"[{self.display_name_raw}]"]


def with_placeholders(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return the parameters of a command, with the placeholders of this module in place of typer's types."""
    made = list(parameters)
    for each in made:
        if isinstance(each, TyperArgument):
            each.__class__ = Argument
        elif isinstance(each, TyperOption) and each.metavar is None:
            each.metavar = "" if each.is_flag else metavar_of(each.type_descriptor.annotation)
    return made


class Command(TyperCommand):
    """A command whose help shows placeholders."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, ``--help`` included."""
        return with_placeholders(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose help shows placeholders."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, ``--help`` included."""
        return with_placeholders(super().get_params(ctx))


class App(typer.Typer):
    """A group of commands, each with the option for foreign code of a store."""

    def __init__(self, **about: Any) -> None:
        """Take a name, a help text and an epilog."""
        super().__init__(
            cls=Group,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
            rich_markup_mode="rich",
            **about,
        )

    def add(self, name: str | None, function: Callable[..., Any]) -> None:
        """Add a command; its help has one line per paragraph or list item, which the screen wraps."""
        paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        text = "\n\n".join(re.sub(r"\n(?!- )", " ", paragraph) for paragraph in paragraphs)
        super().command(name, cls=Command, help=text)(function)

    def store_command(self, name: str | None = None) -> Callable[[Function], Function]:
        """Return a decorator that adds a command which opens stores."""
        from .opening import opening  # noqa: PLC0415 - brings whole rooms, which the help of all commands does not need

        def decorate(function: Function) -> Function:
            self.add(name, opening(function))
            return function

        return decorate
