"""Functions about disk space: disk_usage, prune."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..core.errors import ConfigError
from ..core.progress import Reporter, Silent
from ..core.storage import Address, parse_address
from ..flows import disk_usage as usage
from ..flows import prune as pruning
from ..models.cache import CallCache
from ..models.service import default_cache
from .running import public


@public
def disk_usage(root: str | Address, *, follow_links: bool = False) -> usage.DiskUsage:
    """Count what takes space in a store, or in a folder of nights: every file once, by folder and kind.

    Args:
        root: a store, finished or not, or a folder with stores and reports.
        follow_links: count what links below your own folder lead to; without it they are refused.

    Returns:
        Files and bytes by store and kind.

    Raises:
        StoreError: the folder does not exist, neither is a store nor holds a store or report, or a link or special
            file is below it.
    """
    return usage.disk_usage(parse_address(root, follow_links=follow_links))


@public
def prune(
    root: str | Address,
    *,
    keep: str,
    cache: str = "",
    dry_run: bool = False,
    follow_links: bool = False,
    reporter: Reporter | None = None,
) -> pruning.Pruned:
    """Remove the finished nights of a folder that a rule does not keep, with their reports; run it again after a kill.

    Args:
        root: folder of nights, which are finished stores named by their day (``2026-01-31``); nothing else is removed.
        keep: nights to keep: the days before today, such as ``14d``, or the newest nights, such as ``30``.
        cache: age of the answers that are removed from the call cache of all runs, such as ``90d``. Empty: none.
        dry_run: only return what would be removed.
        follow_links: allow links below your own folder; without it they are refused.
        reporter: gets the progress.

    Returns:
        What was removed, with files and bytes, and what was kept for a reason.

    Raises:
        StoreError: no finished night is there, or a link or special file is below the folder.
        ConfigError: a rule cannot be used, or the folder is a store. CacheError: the call cache cannot be changed.
    """
    retention, age = pruning.Retention.parse(keep), _days("cache", cache) if cache else None
    address = parse_address(root, follow_links=follow_links)
    pruned = pruning.prune(address, retention, reporter or Silent(), dry_run=dry_run)
    if age is not None:
        _prune_cache(Path(default_cache()), age, pruned)
    return pruned


def _days(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,5})d", text, re.ASCII)
    if match is None:
        raise ConfigError(f"{name}: found {text!r}, expected days, such as 90d")
    return int(match[1])


def _prune_cache(path: Path, days: int, pruned: pruning.Pruned) -> None:
    if not path.exists():
        return
    moment = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")
    calls = CallCache(path)
    try:
        count, size = calls.older_than(moment)
        if count and not pruned.dry_run:
            calls.remove_older(moment)
    finally:
        calls.close()
    if count:
        pruned.removals.append(pruning.Removal("cache entries", str(path), count, size))
