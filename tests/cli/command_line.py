"""Run commands in the test's own process: what they show, or the error that they end with."""

from pathlib import Path

from pivot.cli import app
from pivot.errors import PivotError
from typer.testing import CliRunner


def run(*arguments: str | Path) -> str:
    """Run a command in this process and return what it shows."""
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def error_of(*arguments: str | Path) -> PivotError:
    """The error that a command ends with; ``main`` shows it as one line and exits with status 1."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(result.exception, PivotError), result.output
    assert "\n" not in str(result.exception)
    return result.exception
