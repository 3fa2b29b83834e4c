"""The error line of a wrong command line: the option, the value, the expectation, and the command of its help."""

import typer
from pydantic import ValidationError

from ..core.plugins import expectation


def usage_message(error: typer.TyperException) -> str:
    """Return the one line for a command line that cannot be read; empty where its help was shown instead."""
    cause = error.__cause__
    if isinstance(error, typer.BadParameter) and error.param is not None and isinstance(cause, ValidationError):
        problem = cause.errors()[0]
        why = problem.get("ctx", {}).get("error") or f"found {problem['input']!r}, expected {expectation(problem)}"
        message = f"{error.param.opts[0] if error.param.opts else error.param.name}: {why}"
    else:
        message = error.format_message()
    message = message.strip().rstrip(".")
    context = getattr(error, "ctx", None)
    more = f"; see: {context.command_path} --help" if message and context is not None else ""
    return message[:1].lower() + message[1:] + more
