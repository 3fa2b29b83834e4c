"""``--allow``: the option of every command that opens a store."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..core import admission
from ..core.storage import Address
from ..datasets.store.config import env_config
from .console import err, warn
from .values import Keys, Values

_Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="NAME",
        help="Module or model that a store or file names and that may be loaded; without it none is. May be repeated.",
    ),
]


def opening(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the option ``--allow``."""

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        with admission.one_call(arguments.pop("allow") or ()):
            return command(**arguments)

    signature = inspect.signature(command)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(kind=kind) for each in signature.parameters.values()]
    parameters.append(inspect.Parameter("allow", kind, default=None, annotation=_Allow))
    run.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = command.__annotations__ | {"allow": _Allow}
    return run


def allow_typed_code(values: Values, env: str, at: Keys) -> None:
    """Allow code that the user names for an environment, by options or in a config file other than ``run.json``.

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


def note_unfinished(root: Address) -> None:
    """Show how much of an unfinished store is read, and which unfinished stores of a folder are left out."""
    # Training does without polars.
    from ..datasets.store.nights import nights_of, unfinished_nights, unfinished_state  # noqa: PLC0415

    nights = nights_of(root, unfinished=True)
    for store in nights.values():
        if state := unfinished_state(store):
            warn(state)
    if "" not in nights and (names := unfinished_nights(root)):
        warn(f"{root}: {', '.join(names)} left out, not finished; name such a store itself to look into it")


def note_missing_code(root: Address) -> None:
    """Show what is missing on the pages because this call does not allow code that a store names."""
    from ..datasets.store.nights import nights_of  # noqa: PLC0415 - as above

    nights = nights_of(root, unfinished=True)
    code = {name: setting for store in nights.values() for name, setting in store.config.code.items()}
    if refused := admission.missing(code):
        err.print(f"needed turns and plans are left out; {admission.refusal(refused)}", soft_wrap=True)
