"""Options and arguments that several commands have in common."""

from pathlib import Path
from typing import Annotated, Any

import typer

StorePath = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished store.")]


def option(default_help: str, *names: str, panel: str | None = None, **extra: Any) -> Any:
    """Return an option whose help comes first."""
    return typer.Option(*names, help=default_help, rich_help_panel=panel, **extra)
