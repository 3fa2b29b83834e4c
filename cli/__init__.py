"""The ``pivot`` command line. Every command is a thin layer over the Python interface."""

import atexit
import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from ..errors import INTERRUPTED, PivotError
from ..flows.engines.server import quiet_prefect
from ..plugins import blamed
from ..version import __version__
from .benchmark import benchmark
from .bound import bound
from .build import build
from .cache import cache
from .compare import compare
from .console import err, show_error
from .deploy import deploy
from .doctor import doctor
from .du import du
from .estimate import estimate
from .evaluate import evaluation
from .evaluate_policy import policy
from .export import export
from .help_texts import Command, Group
from .import_rollouts import import_rollouts
from .make_tiny_model import make_tiny_model
from .merge import merge
from .opening import opening
from .options import unwrapped
from .peek import peek
from .plot import plot
from .probe import probe
from .prune import prune
from .push import push
from .relabel import relabel
from .report import report
from .serve_env import serve_env
from .serving import serve_command
from .settings_help import WithSettings, settings
from .stats import stats
from .train import train
from .train_rl import rl
from .usage import usage_message
from .verify import verify
from .view import view

TRACEBACK = "PIVOT_TRACEBACK"
"""Environment variable that lets an error inside a plugin show as it is."""

app = typer.Typer(
    name="pivot",
    epilog="Start with: pivot build sokoban frozenlake --out runs/first\n\n"
    "Environment variables, such as OPENAI_API_KEY, PREFECT_API_URL or PIVOT_TRACEBACK: pivot settings variables\n\n"
    "Exit statuses: 0 finished, 1 failed, 2 wrong input, 3 some episodes or answers are pending, "
    "4 no usable guidance from the teacher, 130 Ctrl-C or SIGTERM",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(cls=WithSettings)(opening(build))
for command in (
    verify,
    stats,
    compare,
    probe,
    bound,
    plot,
    report,
    view,
    peek,
    relabel,
    merge,
    du,
    prune,
    export,
    push,
):
    app.command()(opening(command))
app.command("import")(opening(import_rollouts))
for command in (estimate, settings, doctor, cache, deploy):
    app.command()(command)
app.command("serve-command")(serve_command)
app.command("serve-env")(serve_env)
app.command("make-tiny-model")(make_tiny_model)
train.command(cls=WithSettings)(opening(rl))
app.add_typer(train)
evaluation.command()(opening(policy))
app.add_typer(evaluation, name="evaluate")
app.add_typer(benchmark, name="benchmark")
for group in (app, train, evaluation, benchmark):
    group.info.cls = Group
    for registered in group.registered_commands:
        if registered.cls is None or not issubclass(registered.cls, Command):
            registered.cls = Command
        registered.help = unwrapped(registered.callback)


def _show_version(asks: bool) -> None:
    if asks:
        typer.echo(f"pivot {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find the step where a failed vision-language agent lost the task, certify it, and turn it into training data."""


def main() -> None:
    """Run the command line: errors as one line, Ctrl-C as an offer to resume."""
    try:
        quiet_prefect()
        status = app(prog_name="pivot", standalone_mode=False)
    except PivotError as error:
        show_error(str(error))
        _leave(error.status)
    except typer.TyperException as error:
        if message := usage_message(error):
            show_error(message)
        _leave(error.exit_code)
    except Exception as error:
        culprit = None if os.environ.get(TRACEBACK) else blamed(error) or _damage(error)
        if culprit is None:
            raise  # a defect of ours: the traceback is what a report needs
        show_error(f"{culprit}; set {TRACEBACK}=1 to see the whole traceback")
        _leave(1)
    except SystemExit as leaving:  # of a library
        show_error(blamed(leaving) or _exit_of_a_library(leaving))
        _leave(1)
    if status == INTERRUPTED:
        err.print(_INTERRUPTED.get(next(iter(sys.argv[1:2]), ""), "interrupted"))
    _leave(status if isinstance(status, int) else int(status is not None))


def _exit_of_a_library(leaving: SystemExit) -> str:
    """Return one line about code that ended the process in place of raising an error."""
    last = traceback.extract_tb(leaving.__traceback__)[-1]
    return f"{last.filename}:{last.lineno} called sys.exit({leaving.code!r}), expected an error or a result; repair it"


def _damage(error: Exception) -> str | None:
    """Return one line about files that a library cannot read; None for other errors."""
    library = type(error).__module__.partition(".")[0]
    if library not in ("polars", "pyarrow", "duckdb"):
        return None
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"the files of the store cannot be read ({reason}): pivot verify names what is damaged"


_RESUME = "interrupted; run the same command again to resume"
_INTERRUPTED = {
    **dict.fromkeys(("benchmark", "build", "import", "relabel", "probe", "merge", "prune", "export", "push"), _RESUME),
    "train": f"{_RESUME}, with --resume",
    **dict.fromkeys(("verify", "report"), "interrupted; nothing was changed: run the same command again"),
}
"""Message after Ctrl-C, by command; reading commands keep nothing that they could resume."""


def _leave(status: int) -> NoReturn:
    """Exit after the last output is flushed and Prefect's last events are sent, without taking modules apart.

    Prefect's background threads live to the end, and with them taking modules apart makes native libraries complain on
    the user's screen about objects that are still in use.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except PivotError as error:
            status = status or error.status
            show_error(str(error))
    atexit.register(os._exit, status)
    sys.exit(status)
