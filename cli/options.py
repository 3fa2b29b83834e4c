"""Options and arguments that several commands have in common."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typing_extensions import TypeAliasType

from ..storage import Address, parse_address

StoreAddress = TypeAliasType("StoreAddress", Address)
"""An address by one name: Typer takes no unions."""


def store_argument(metavar: str, default_help: str) -> Any:
    """Return an argument that is a folder or an address of an object store."""
    return typer.Argument(metavar=metavar, help=default_help, parser=parse_address)


StorePath = Annotated[StoreAddress, store_argument("DIR", "Folder of a finished store, or its s3:// address.")]


def option(default_help: str, *names: str, panel: str | None = None, **extra: Any) -> Any:
    """Return an option whose help comes first."""
    return typer.Option(*names, help=default_help, rich_help_panel=panel, **extra)


def address_option(default_help: str, name: str) -> Any:
    """Return the same as an option."""
    return option(default_help, name, metavar="PATH", parser=parse_address)


def unwrapped(command: Callable[..., Any] | None) -> str:
    """Return what a command says of itself with one line a paragraph: the screen has a width of its own."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)
