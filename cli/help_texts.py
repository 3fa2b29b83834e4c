"""Help on the screen: descriptions of fields as help texts, placeholders of values, and commands that show both.

``--help`` fits on a screen: where all options would not, it has the common ones alone, each with its first statement.
``--help-all`` shows everything.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ..core.storage import Url

_CODE = re.compile(r"``([^`]+)``|`([^`]+)`")
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
        forms = getattr(ctx.command.callback, "forms", ())  # a config file may give what they need
        needed = self.required or any(form.needs(self.metavar) for form in forms)
        return [self.display_name_raw if needed else f"[{self.display_name_raw}]"]


SCREEN = 40
"""Maximum number of lines of ``--help``."""
_COMMON = {
    "build": "out tasks set levels policy model base-url writer log workers config dry-run",
    "import": "format out set require option dry-run workers config",
    "relabel": "solver split log infeasible writer writer-model only-rejected refresh workers",
    "probe": "arm resamples show policy policy-set policy-service workers",
    "export": "out env set workers",
    "sft": "model recipe env out lora epochs lr batch resume check-only dry-run config",
    "rl": "model arm out recipe updates prompts lambda-opd lr resume dry-run config",
    "analyzer": "data env pictures shots base-url out limit config",
    "policy": "env checkpoint levels out config",
    "run": "data question env pictures shots base-url out config",
}
"""Options of the short help of commands with many."""
FIRST = re.compile(r"(?<![.])[;.]\s+(?=[A-Za-z`(])|\.$")
"""Where the first statement of a help text ends."""


class Helpful(TyperCommand if TYPE_CHECKING else object):
    """A command, or a group of them, with a short and a whole help."""

    shows_all = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, ``--help`` included."""
        made = super().get_params(ctx)
        for each in made:
            if isinstance(each, TyperArgument):
                each.__class__ = Argument
        return made

    def get_help_option_names(self, ctx: Any) -> list[str]:
        """Return the names of the help option."""
        return ["--help", "--help-all"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; see the base class."""
        self.shows_all = "--help-all" in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, the short one if that is asked for and the whole one does not fit on a screen."""
        whole = ctx.make_formatter()
        self._write_help(ctx, whole, shows_all=True)
        if self.shows_all or isinstance(self, TyperGroup) or whole.getvalue().count("\n") <= SCREEN:
            formatter.write(whole.getvalue())
        else:
            self._write_help(ctx, formatter, shows_all=False)

    def _write_help(self, ctx: Any, formatter: Any, *, shows_all: bool) -> None:
        self.format_usage(ctx, formatter)
        about, _, examples = re.sub(r"\[bold\]Examples?\[/\]", "\0", self.help or "").partition("\0")
        paragraphs = re.sub(r"\[/?(?:bold)?\]", "", about).strip().split("\n\n")
        for paragraph in paragraphs if shows_all else paragraphs[:1]:
            formatter.write_paragraph()
            for line in paragraph.split("\n"):
                formatter.write_text(line)
        if lines := examples.split("\n\n")[1:]:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line.strip()}\n" for line in (lines if shows_all else lines[:3])))
        for title, rows in self._lists(ctx, shows_all=shows_all):
            with formatter.section(title):
                formatter.write_dl(rows, col_max=26)
        if not shows_all:
            formatter.write(f"\nAll options: {ctx.command_path} --help-all\n")
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)

    def _lists(self, ctx: Any, *, shows_all: bool) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """Yield the headings of options and commands, each with names and texts."""
        common = _COMMON.get(self.name or "", "").split()
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        parameters = self.get_params(ctx)
        if common and not shows_all:
            named = {each.opts[0][2:]: each for each in parameters if isinstance(each, TyperOption)}
            arguments = [each for each in parameters if not isinstance(each, TyperOption)]
            parameters = [*arguments, *(named[name] for name in common)]
        for each in parameters:
            record = each.get_help_record(ctx)
            is_option = isinstance(each, TyperOption)
            if record is None:
                continue
            name, text = record
            if each is self._help_option:
                text = "Show the common options, or all, and exit."
            elif not shows_all:
                default = re.search(r"\(default: .*?\)|\[default: .*?\]|\[required\]|\(required\)", text)
                text = FIRST.split(text)[0]
                text += f" {default[0]}" if default and default[0] not in text else ""
            title = (getattr(each, "rich_help_panel", None) if shows_all else None) or "Options"
            sections.setdefault(title if is_option else "Arguments", []).append((name, text))
        for name, command in getattr(self, "commands", {}).items():
            text = command.short_help or FIRST.split((command.help or "").split("\n\n")[0])[0]
            sections.setdefault(command.rich_help_panel or "Commands", []).append((name, text))
        yield from ((title, rows) for title, rows in sections.items() if rows)


class Command(Helpful, TyperCommand):
    """A command."""


class Group(Helpful, TyperGroup):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A group of commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; without a command the help is the message."""
        if not args:
            typer.echo(self.get_help(ctx), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)


class App(typer.Typer):
    """A group of commands, each with the option for foreign code of a store."""

    def __init__(self, **about: Any) -> None:
        """Take a name, a help text and an epilog."""
        super().__init__(
            cls=Group, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **about
        )

    def add(self, name: str | None, function: Callable[..., Any], **about: Any) -> None:
        """Add a command; its help has one line per paragraph or list item, which the screen wraps."""
        paragraphs = (inspect.getdoc(function) or "").split("\n\n")
        text = "\n\n".join(re.sub(r"\n(?!- )", " ", paragraph) for paragraph in paragraphs)
        super().command(name, cls=Command, help=text, **about)(function)

    def store_command(self, name: str | None = None, **about: Any) -> Callable[[Function], Function]:
        """Return a decorator that adds a command which opens stores."""
        from .opening import opening  # noqa: PLC0415 - brings whole rooms, which the help of all commands does not need

        def decorate(function: Function) -> Function:
            self.add(name, opening(function), **about)
            return function

        return decorate
