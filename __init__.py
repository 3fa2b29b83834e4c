"""PIVOT: find the step where a failed vision-language agent lost the task, prove it, and train on it.

Four functions are the whole Python interface, and the command line calls the same ones::

    import pivot

    verdict = pivot.certify("sokoban", level, ["right", "up"], horizon=9)   # one episode, in memory
    verdicts = pivot.certify_batch("sokoban", episodes)                     # many at once
    result = pivot.build(config)                                            # rollouts, labels and dataset on disk
    frames = pivot.load_store("runs/demo")                                  # lazy polars frames over a store
"""

from typing import TYPE_CHECKING, Any

from .errors import PivotError
from .version import __version__

if TYPE_CHECKING:
    from .datasets.config import RunConfig
    from .datasets.parts import load_store
    from .datasets.store import StoreFrames
    from .flows.api import build
    from .solvers.api import certify, certify_batch
    from .solvers.base import Certificate, Unsolved, Verdict

__all__ = [
    "Certificate",
    "PivotError",
    "RunConfig",
    "StoreFrames",
    "Unsolved",
    "Verdict",
    "__version__",
    "build",
    "certify",
    "certify_batch",
    "load_store",
]

_HOMES = {
    "Certificate": "solvers.base",
    "RunConfig": "datasets.config",
    "StoreFrames": "datasets.store",
    "Unsolved": "solvers.base",
    "Verdict": "solvers.base",
    "build": "flows.api",
    "certify": "solvers.api",
    "certify_batch": "solvers.api",
    "load_store": "datasets.parts",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: ``import pivot`` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only needed here

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
