"""The ``pivot`` command line. Every command is a thin layer over the Python interface."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import click
import typer

from ... import __version__
from ...errors import PivotError
from .console import err, fail
from .doctor import doctor
from .make import build, relabel
from .show import peek, stats, verify

app = typer.Typer(
    name="pivot",
    help="Find the step where a failed vision-language agent lost the task, prove it, and make training data of it.",
    epilog="Start with: pivot build sokoban frozenlake --out runs/first",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (build, verify, stats, peek, relabel, doctor):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pivot {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Find the step where a failed vision-language agent lost the task, prove it, and make training data of it."""


def quiet_prefect() -> None:
    """Keep Prefect offline and off the user's screen; settings that the user made win."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pivot" / "prefect"
    os.environ.setdefault("PREFECT_HOME", str(home))
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")


def main() -> None:
    """Run the command line: errors as one line, Ctrl-C as an offer to go on."""
    quiet_prefect()
    # A reader that closes the pipe early (`pivot stats DIR | head`) is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        status = app(standalone_mode=False)
    except PivotError as error:
        fail(str(error))
    except (KeyboardInterrupt, click.Abort):
        err.print("interrupted; run the same command again to go on where it stopped")
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    else:
        sys.exit(status if isinstance(status, int) else 0)
