"""``pivot.build``: the pipeline from Python, without Prefect."""

from collections.abc import Mapping
from typing import Any

from ..datasets.config import RunConfig, make_config
from ..datasets.progress import Reporter, Silent
from ..storage import Address, parse_address
from .engines.base import Workers, open_pool
from .engines.local import execute_with
from .pipeline import BuildResult, build_store


def build(
    config: RunConfig | Mapping[str, Any],
    out: str | Address,
    *,
    workers: int = 1,
    refresh: bool = False,
    reporter: Reporter | None = None,
    engine: str = "local",
    address: str = "",
    follow_links: bool = False,
) -> BuildResult:
    """Roll out, label and export a dataset; the same call again goes on where the last one stopped.

    Args:
        config: a :class:`~pivot.datasets.config.RunConfig`, or plain data for one, such as
            ``{"environments": {"sokoban": {"tasks": 16, "settings": {}}}}``.
        out: folder of the store, or an address such as ``s3://bucket/folder``; new, empty, or one that this config
            began.
        workers: processes. With more than one, a script must guard its entry with ``if __name__ == "__main__":``, as
            for any use of multiprocessing.
        refresh: make everything anew.
        reporter: is told how far the work has come.
        engine: who runs the shards: ``local``, ``ray``, ``dask``, or another one that is installed.
        address: its cluster; empty for workers on this machine. With ``workers`` 0 every core gets a shard.
        follow_links: whether links below ``out`` are followed; without it they are refused. ``out`` may be one itself.

    Returns:
        Counts by environment, and whether anything had to be done.

    Raises:
        PivotError: its subclasses say what is wrong with config, levels, plugins or disk.
    """
    resolved = config if isinstance(config, RunConfig) else make_config(config)
    root = parse_address(out, follow_links=follow_links)
    with open_pool(Workers(engine, address, workers), list(resolved.environments), root) as pool:
        return build_store(root, resolved, execute_with(pool), reporter or Silent(), refresh=refresh)
