"""The ``pivot`` command line. Every command is a thin layer over the Python interface."""

import os
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ... import __version__
from ...errors import PivotError
from .console import err, fail
from .doctor import doctor
from .make import build, relabel
from .show import peek, stats, verify

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

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
    if "PREFECT_HOME" not in os.environ:
        os.environ["PREFECT_HOME"] = str(_prefect_home())
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
    # The first start of a busy machine can take half a minute; Prefect's own limit is 20 s.
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "180")


def _prefect_home() -> Path:
    """A lasting folder of our own, so that a run does not set up a new database; a temporary one where that fails."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pivot" / "prefect"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="pivot-prefect-"))
    return home


def main() -> None:
    """Run the command line: errors as one line, Ctrl-C as an offer to go on."""
    quiet_prefect()
    # A reader that closes the pipe early (`pivot stats DIR | head`) is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app()
    except PivotError as error:
        fail(str(error))
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            err.print("interrupted; run the same command again to go on where it stopped")
        raise
