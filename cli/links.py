"""``--follow-links``: the option of every command that opens a store."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ..storage import FollowedPath, allow_links
from .options import option

NAME = "follow_links"
_Follow = Annotated[
    bool,
    option("Follow links inside your own stores; without it they are refused.", "--follow-links"),
]


def with_links(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the option, which holds for every folder among its arguments."""

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        if arguments.pop(NAME):
            arguments = {name: _followed(value) for name, value in arguments.items()}
        return command(**arguments)

    signature = inspect.signature(command)
    added = inspect.Parameter(NAME, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Follow)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=[*parameters, added])  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = command.__annotations__ | {NAME: _Follow}
    return run


def _followed(value: Any) -> Any:
    if isinstance(value, Path):
        return FollowedPath(value)
    if isinstance(value, list):
        return [_followed(each) for each in value]
    if isinstance(value, str) and Path(value).is_dir():  # data of a training, which may be an id on the hub, too
        allow_links(value)
    return value
