"""The ``pivot`` command line. Every command is a thin layer over the Python interface."""

import atexit
import os
import sys
from typing import Annotated, NoReturn

import typer

from .. import __version__
from ..errors import PivotError
from ..flows.engines.server import quiet_prefect
from .build import build
from .cache import cache
from .compare import compare
from .console import err, show_error
from .doctor import doctor
from .evaluate import evaluation
from .evaluate_policy import policy
from .options import unwrapped
from .peek import peek
from .plot import plot
from .probe import probe
from .relabel import relabel
from .report import report
from .serving import serve_command
from .settings_help import settings
from .stats import stats
from .train import train
from .train_rl import rl
from .verify import verify
from .view import view

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
for command in (build, verify, stats, compare, probe, plot, report, view, peek, relabel, settings, doctor, cache):
    app.command()(command)
app.command("serve-command")(serve_command)
train.command()(rl)
app.add_typer(train)
evaluation.command()(policy)
app.add_typer(evaluation, name="evaluate")
for group in (app, train, evaluation):
    for registered in group.registered_commands:
        registered.help = unwrapped(registered.callback)


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


def main() -> None:
    """Run the command line: errors as one line, Ctrl-C as an offer to go on."""
    try:
        quiet_prefect()
        app()
    except PivotError as error:
        show_error(str(error))
        _leave(error.status)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if status == INTERRUPTED:
            err.print("interrupted; run the same command again to go on where it stopped")
        _leave(status)


def _leave(status: int) -> NoReturn:
    """Exit after the last output is flushed and Prefect's last events are sent, without taking modules apart.

    Prefect's background threads live to the end, and with them taking modules apart makes native libraries complain on
    the user's screen about objects that are still in use.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            pass  # the reader has seen enough (`pivot stats DIR | head`)
        except OSError as error:
            status = status or 1
            show_error(f"cannot write the output: {error.strerror}")
    atexit.register(os._exit, status)
    sys.exit(status)
