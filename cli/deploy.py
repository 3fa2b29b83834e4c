"""``pivot deploy``: the file from which Prefect schedules a nightly build."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

from ..errors import ConfigError
from ..storage import write_file
from .console import out
from .options import option

FILE = "prefect.yaml"
HEAD = "#   "
"""What begins a line of the file's head that is a command."""


def deploy(
    target: Annotated[Path, option("Where to write it.", "--to")] = Path(FILE),
) -> None:
    """Write prefect.yaml, which holds a nightly build, and say how Prefect is told about it.

    Folder and seed of a night come from the scheduled date; every store is verified. Edit the file before it is
    deployed: what is built, where to, when.

    [bold]Example[/]

    pivot deploy
    """
    if target.exists():
        raise ConfigError(f"{target} exists; remove it, or name another file with --to")
    text = files(__name__.partition(".")[0]).joinpath(FILE).read_text(encoding="utf-8")
    write_file(target, text.encode())
    out.print(f"wrote {target}; edit it, then, on the machine that shall work:")
    for line in text.splitlines():
        if line.startswith(HEAD):
            out.print(f"  {line.removeprefix(HEAD)}", soft_wrap=True)
