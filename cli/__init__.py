"""The ``pivot`` command line. Every command is a thin layer over the Python interface.

A command's module is imported when the command is called.
"""

import atexit
import os
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from ..core.blame import blamed
from ..core.errors import INTERRUPTED, PivotError
from ..core.version import __version__
from ..models.extras import install_line
from .console import err, resuming, show_error
from .help_texts import App

TRACEBACK = "PIVOT_TRACEBACK"
"""Environment variable that lets an error inside a plugin show as it is."""

COMMANDS: dict[str, dict[str, str]] = {
    "Make a store": {
        "build": "play episodes, label every failure, write a dataset",
        "import": "the same from rollouts of your own trainer",
        "relabel": "new labels for the same rollouts",
        "merge": "one store of several",
    },
    "Look at it": {
        "stats": "failure modes, steps, settings; or your own SQL",
        "top": "the most instructive failures, in words and as a picture",
        "peek": "one failure in words, and as a picture",
        "view": "browse every failure in a browser; --out writes the site",
        "plot": "pictures of returns, modes, pivot steps, slack",
        "compare": "what changed between two stores",
        "probe": "play failures again from the pivot",
        "verify": "prove every label a second time",
    },
    "Take out": {
        "export": "what a trainer takes: pairs, credit, corrections, ...",
        "push": "publish the dataset on the Hugging Face hub",
    },
    "Train": {
        "train": f"an Analyzer, or a policy; needs {install_line('train')}",
        "evaluate": "an Analyzer, a policy, or baselines that read the log",
        "benchmark": "make it, ask a model, score replies, compare results",
        "make-model": "a small model to try all of this on a CPU",
        "rehearse": "both stages on this machine with random weights",
    },
    "Operate": {
        "deploy": "nightly builds with Prefect",
        "prune": "remove old nights",
        "doctor": "what is installed; settings of NAME; check a model server",
        "cache": "cached answers of models",
        "serve-command": "the vLLM command that serves a model",
    },
}
"""Commands with their summaries, by heading of the help."""
NO_STORE = ("doctor", "cache", "deploy", "serve-command", "make-model", "rehearse")
"""Commands that open no store."""
GROUPS = ("train", "evaluate", "benchmark")
"""Groups of commands."""
_PLACES = {
    "import": "import_rollouts:import_rollouts",
    "serve-command": "serving:serve_command",
    "evaluate": "evaluate:evaluation",
    "plot": "view:plot",
    **{name: f"upkeep:{name}" for name in ("prune", "cache")},
    **{name: f"export:{name}" for name in ("merge", "push")},
}
"""Modules and functions of commands that are not named like their module."""


def _loaded(name: str) -> Any:
    module, _, function = _PLACES.get(name, name.replace("-", "_")).partition(":")
    return getattr(import_module(f".{module}", __name__), function or module)


def command_line(called: Iterable[str]) -> App:
    """Return the command line with the named commands loaded; of the others it has only the summary."""
    app = App(
        name="pivot",
        epilog="Start: pivot build sokoban frozenlake --out runs/first, then: pivot stats runs/first\n\n"
        "Environment variables: docs/reference/configuration.md. Exit status: 0 finished, 1 failed, 2 wrong input, "
        "3 episodes or answers are pending, 4 no usable guidance from the teacher, 130 Ctrl-C",
    )
    app.callback()(_at_the_root)
    called = set(called)
    for panel, commands in COMMANDS.items():
        for name, summary in commands.items():
            about: dict[str, Any] = {"short_help": summary, "rich_help_panel": panel}
            if name in GROUPS:
                group = _loaded(name) if name in called else typer.Typer()
                app.add_typer(group, name=name, help=f"{summary[:1].upper()}{summary[1:]}.", **about)
            elif name not in called:
                app.add(name, lambda: None, **about)
            elif name in NO_STORE:
                app.add(name, _loaded(name), **about)
            else:
                app.store_command(name, **about)(_loaded(name))
    return app


def __getattr__(name: str) -> Any:
    """Return the whole command line as ``app``."""
    if name != "app":
        raise AttributeError(name)
    return _whole()


@cache
def _whole() -> App:
    return command_line(name for commands in COMMANDS.values() for name in commands)


def _show_version(asks: bool) -> None:
    if asks:
        typer.echo(f"pivot {__version__}")
        raise typer.Exit


def _at_the_root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find the step where a failed vision-language agent lost the task, certify it, and turn it into training data."""


def main() -> None:
    """Run the command line: errors as one line, Ctrl-C as an offer to resume."""
    called = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        status = command_line({called})(prog_name="pivot", standalone_mode=False)
    except PivotError as error:
        show_error(str(error))
        _leave(error.status)
    except MemoryError:
        more = "raise it with --max-memory, or restore" if called == "verify" else "restore"
        show_error(f"reading needs more memory than this process may take; {more} the store from a copy")
        _leave(1)
    except typer.TyperException as error:
        show_error(usage_message(error))
        _leave(error.exit_code)
    except Exception as error:
        if _stopped(error):
            _say_interrupted()
            _leave(INTERRUPTED)
        culprit = None if os.environ.get(TRACEBACK) else blamed(error) or _damage(error)
        if culprit is None:
            raise  # a defect of PIVOT: a bug report needs the traceback
        show_error(f"{culprit}; set {TRACEBACK}=1 to see the whole traceback")
        _leave(1)
    except SystemExit as leaving:  # a library called sys.exit
        show_error(blamed(leaving) or _exit_of_a_library(leaving))
        _leave(1)
    if status == INTERRUPTED:
        _say_interrupted()
    _leave(status if isinstance(status, int) else int(status is not None))


def _say_interrupted() -> None:
    err.print(resuming(_INTERRUPTED.get(next(iter(sys.argv[1:2]), ""), "interrupted")))


def _stopped(error: BaseException | None) -> bool:
    """Return whether Ctrl-C is the cause of an error: pydantic raises its own where one of its callbacks meets it."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _stopped(error.__cause__))


def usage_message(error: typer.TyperException) -> str:
    """Return one line about an invalid command line."""
    message = error.format_message().strip().rstrip(".")
    context = getattr(error, "ctx", None)
    more = f"; see: {context.command_path} --help" if context is not None else ""
    return message[:1].lower() + message[1:] + more


def _exit_of_a_library(leaving: SystemExit) -> str:
    """Return one line about code of a library that ended the process instead of raising an error."""
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
    **dict.fromkeys(("verify", "view"), "interrupted; nothing was changed: run the same command again"),
}
"""Message after Ctrl-C, by command; reading commands have nothing to resume."""


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
    atexit.register(_end, status)
    sys.exit(status)


def _end(status: int) -> NoReturn:
    """End the process with what libraries leave running: Prefect's temporary server, and semaphores of worker pools."""
    if servers := sys.modules.get("prefect.server.api.server"):
        for server in list(servers.SubprocessASGIServer._instances.values()):
            server.stop()
    if processes := sys.modules.get("multiprocessing.util"):
        processes._run_finalizers(0)
    os._exit(status)
