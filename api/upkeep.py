"""Functions about disk space: disk_usage, prune."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..datasets.progress import Reporter, Silent
from ..errors import ConfigError
from ..flows import disk_usage as usage
from ..flows import prune as pruning
from ..models.cache import CallCache
from ..models.service import default_cache
from ..storage import Address, parse_address
from .running import public


@public
def disk_usage(root: str | Address, *, follow_links: bool = False) -> usage.DiskUsage:
    """Count what takes space in a store, or in a folder of nights: every file once, by part and kind.

    Args:
        root: a store, finished or not, or a folder with stores and reports.
        follow_links: count what links below your own folder lead to; without it they are refused.

    Returns:
        Files and bytes by store, part and kind.

    Raises:
        StoreError: the folder does not exist, neither is a store nor holds a store or report, or a link or special
            file is below it.
    """
    return usage.disk_usage(parse_address(root, follow_links=follow_links))


@public
def prune(
    root: str | Address,
    *,
    keep: str = "",
    unfinished: str = f"{pruning.WEEK}d",
    labels: bool = True,
    reports: bool = False,
    cache: str = "",
    dry_run: bool = False,
    follow_links: bool = False,
    reporter: Reporter | None = None,
) -> pruning.Pruned:
    """Remove older label versions, given-up parts, leftovers, and nights that a retention rule does not keep.

    Nothing that the manifest of a kept store needs is removed, and a store verifies afterwards with the same dataset.
    Each store is changed under its lock; run the same call again after a kill.

    Args:
        root: a store, a folder of nights, or a folder of such folders.
        keep: nights to keep, for a folder: the days before today, such as ``14d``, or the newest finished nights of
            each folder, such as ``30``. Only stores named by a day (``2026-01-31``) are nights. Empty: all.
        unfinished: days after which an unfinished part that no run writes is given up; ``0d`` for at once.
        labels: remove older label versions, and leftovers of killed runs.
        reports: also remove the folders ``STORE-report`` of kept stores; ``pivot report`` writes them again.
        cache: age of the answers that are removed from the call cache of all runs, such as ``90d``. Empty: none.
        dry_run: only return what would be removed.
        follow_links: allow links below your own folder; without it they are refused. Of a link inside a store the
            link alone is removed.
        reporter: gets the progress.

    Returns:
        What was removed, with files and bytes, and what was kept for a reason.

    Raises:
        StoreError: no store is there, one is being written, or a link or special file is below the folder.
        ConfigError: a rule cannot be used. CacheError: the call cache cannot be changed.
    """
    rules = pruning.Rules(
        pruning.Retention.parse(keep) if keep else None,
        labels=labels,
        unfinished_days=_days("unfinished", unfinished),
        reports=reports,
        dry_run=dry_run,
    )
    age = _days("cache", cache) if cache else None
    pruned = pruning.prune(parse_address(root, follow_links=follow_links), rules, reporter or Silent())
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
