"""Options that say who runs the shards of a command; see docs/how-to/engines.md."""

from typing import Annotated

from .. import plugins
from .options import option

_PANEL = "Engines"

EngineName = Annotated[
    str,
    option(
        f"Who runs the shards: {', '.join(plugins.names('engines'))} (default local, processes of this machine).",
        "--engine",
        panel=_PANEL,
    ),
]
ClusterAddress = Annotated[
    str,
    option(
        "Cluster of the engine, such as HOST:6379 or ray://HOST:10001 for ray, tcp://HOST:8786 for dask (default: "
        "workers on this machine, started for the run).",
        "--address",
        panel=_PANEL,
    ),
]
WORKERS = "Worker processes; of a cluster, shards at a time (default: one a core)."
"""Help of the option that says how many."""
