"""Options and arguments that several commands have in common."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

StorePath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished store.")]


def option(default_help: str, *names: str, panel: str | None = None, **extra: Any) -> Any:
    """Return an option whose help comes first."""
    return typer.Option(*names, help=default_help, rich_help_panel=panel, **extra)


def unwrapped(command: Callable[..., Any] | None) -> str:
    """Return what a command says of itself with one line a paragraph: the screen has a width of its own."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)
