"""Functions that run commands in the test's own process and return their output or error."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pivot.cli import app
from pivot.cli.build import RUN_FORM
from pivot.cli.from_config import Form, from_config
from pivot.core.errors import PivotError
from pivot.datasets.store.config import RunConfig
from typer.testing import CliRunner


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command of the command line with its words."""
    for name, each in group.commands.items():
        yield from commands(each, (*path, name)) if hasattr(each, "commands") else [((*path, name), each)]


def run(*arguments: str | Path) -> str:
    """Run a command in this process and return its output."""
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def error_of(*arguments: str | Path) -> PivotError:
    """Return the error of a command; ``main`` shows it as one line and exits with its status."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(result.exception, PivotError), result.output
    assert "\n" not in str(result.exception)
    return result.exception


def read(form: Form[Any], *words: str | Path) -> Any:
    """Return the model that a form makes of a command line; errors are raised."""
    models: list[Any] = []
    program = typer.Typer(pretty_exceptions_enable=False)
    program.command()(from_config(form)(models.append))
    result = CliRunner().invoke(program, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return models[0]


def run_config(line: str) -> RunConfig:
    """Return the run config that the options of ``pivot build`` come to."""
    return read(RUN_FORM, *shlex.split(line))
