"""``--follow-links`` and ``--allow``: the options of every command that opens a store."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ..core import admission
from ..core.storage import Address, FollowedPath, allow_links
from ..datasets.store.config import env_config
from ..datasets.store.nights import nights_of
from .console import err
from .options import option
from .values import Keys, Values

_Follow = Annotated[
    bool,
    option("Follow links inside your own stores; without it they are refused.", "--follow-links"),
]
_Allow = Annotated[
    list[str] | None,
    option(
        "Module or model that a store or file names and that may be loaded; without it none is. May be repeated.",
        "--allow",
        metavar="NAME",
    ),
]
ADDED = {"follow_links": (_Follow, False), "allow": (_Allow, None)}


def opening(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options, which hold for every folder among its arguments."""

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        follows, names = arguments.pop("follow_links"), arguments.pop("allow")
        if follows:
            arguments = {name: _followed(value) for name, value in arguments.items()}
        with admission.one_call(names or ()):
            return command(**arguments)

    signature = inspect.signature(command)
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in ADDED.items()
    ]
    parameters = [each.replace(kind=kind) for each in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=[*parameters, *added])  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = command.__annotations__ | {name: annotation for name, (annotation, _) in ADDED.items()}
    return run


def _followed(value: Any) -> Any:
    if isinstance(value, Path):
        return FollowedPath(value)
    if isinstance(value, list):
        return [_followed(each) for each in value]
    if isinstance(value, str) and Path(value).is_dir():  # data of a training, which may be an id on the hub, too
        allow_links(value)
    return value


def allow_typed_code(values: Values, env: str, at: Keys) -> None:
    """Allow the code that the user names for an environment: with options, or in a config file that is no ``run.json``.

    Args:
        values: the settings, with the origin of each.
        env: the environment.
        at: where its settings are.

    Raises:
        NotAllowedError: the ``run.json`` of a store names other code, and no --allow does.
    """
    code = env_config(env, values.get(at) or {}).code
    for name, setting in code.items():
        file = values.run_file((*at, setting.partition(".")[2]))
        if file is None:
            admission.allow_code(name)
        else:
            admission.note_store([name], file)
    admission.require(code)


def note_missing_code(root: Address) -> None:
    """Show what pages lack because this call does not allow the code that a store names."""
    code = {name: setting for store in nights_of(root).values() for name, setting in store.config.code.items()}
    if refused := admission.missing(code):
        err.print(f"needed turns and plans are left out; {admission.refusal(refused)}", soft_wrap=True)
