"""Keywords that the functions share which run on workers, and the check of misspelt ones."""

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec, TypedDict, TypeVar, cast, get_type_hints

from ..core import plugins
from ..core.admission import Names, allowing
from ..core.lazy import near_match
from ..core.progress import Reporter
from ..core.storage import Address
from .engines.base import Engine, WorkerPool

P = ParamSpec("P")
R = TypeVar("R")


class Running(TypedDict, total=False):
    """Keywords of every function that takes ``**running``: settings of the workers."""

    workers: int
    """Processes, 1 by default; 0 for one per core. With more than one, a script must guard its entry with
    ``if __name__ == "__main__":``, as for any use of multiprocessing."""
    reporter: Reporter | None
    """Receives the progress."""
    engine: str
    """``local`` by default; ``ray``, ``dask``, or another engine that is installed."""
    address: str
    """Cluster of the engine; by default the workers are on this machine."""
    allow: Names
    """Modules or models that the store names and that this call may load, such as ``"my_games"``; without it none of
    them is loaded."""


DEFAULTS: Running = {"workers": 1, "reporter": None, "engine": "local", "address": "", "allow": ()}


def pool_of(running: Running, environments: Sequence[str], store: Address) -> AbstractContextManager[WorkerPool]:
    """Open the workers for shards of these environments; see :meth:`.Engine.pool`.

    Raises:
        PluginError: the engine is unknown. Others as there.
    """
    name = running.get("engine", "local")
    kind: type[Engine] = plugins.load("engines", name)
    settings = {"workers": running.get("workers", 1), "address": running.get("address", "")}
    engine = kind(plugins.read_settings(kind.config_type, settings, f"engine {name}: "))
    return engine.pool(environments, store)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Give a function with ``**running`` its whole signature, name the nearest of a misspelt keyword, and allow code.

    Python accepts any keyword for ``**running``, so a misspelt one would have no effect.
    """
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=kind)
        for name, kind in get_type_hints(Running).items()
    ]
    names = [each.name for each in (*own, *shared)]

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        for name in keywords.keys() - {*names}:
            raise TypeError(
                f"{function.__name__}() has no parameter {name!r}{near_match(name, names)} "
                f"(parameters: {', '.join(names)})"
            )
        with allowing(cast(Names, keywords.get("allow", ()))):
            return function(*arguments, **keywords)

    call.__signature__ = signature.replace(parameters=[*own, *shared])  # pyright: ignore[reportAttributeAccessIssue]
    return call
