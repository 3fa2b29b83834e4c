"""``pivot prune`` and ``pivot cache``: old nights, and cached answers of models."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from ..core.errors import CacheError, ConfigError
from ..flows import prune as pruning
from ..models.cache import CallCache
from ..models.service import default_cache
from .console import ProgressBars, err, out, show_table
from .options import StoreAddress, option, path_argument, store_argument


def prune(
    root: Annotated[StoreAddress, store_argument("DIR", "A folder of nights, or its s3:// address.")],
    keep: Annotated[str, option("Nights to keep: days such as 14d, or a number such as 30.", "--keep", metavar="RULE")],
    owner: Annotated[
        str | None, option("Only nights of this owner; needed where nights have several.", "--owner", metavar="NAME")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Remove files at once, not on a later day.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also remove more than half of the nights.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
) -> None:
    """Remove old nights with their reports.

    Nights are the finished stores in DIR that are named by a day (2026-01-31). Nothing else is removed, and the newest
    night never; a night that a run writes is left alone. An old night is marked first: readers leave it out, and the
    next prune on a later day removes it. Until then, rename its .removed-DAY.json to manifest.json to have it back.

    [bold]Examples[/]

    pivot prune runs/nightly --keep 14d --dry-run

    pivot prune runs/nightly --keep 30
    """
    with ProgressBars() as bars:
        pruned = pruning.prune(root, keep=keep, owner=owner, now=now, yes=yes, dry_run=dry_run, reporter=bars)
    for line in pruned.kept:
        err.print(f"kept: {line}", soft_wrap=True)
    rows = [[each.kind, each.address, each.files, decimal(each.bytes)] for each in pruned.removals]
    if rows:
        show_table("To do" if dry_run else "Done", ["what", "where", "files", "size"], rows)
    said = [f"{decimal(pruned.bytes)} removed"] * bool(pruned.bytes)
    said += [f"{pruned.marked} nights marked, which the next prune on a later day removes"] * bool(pruned.marked)
    text = ", ".join(said) or "nothing to remove"
    out.print(f"{text}; with --dry-run nothing was changed" if rows and dry_run else text, soft_wrap=True)


def cache(
    file: Annotated[Path | None, path_argument("File of the cache (default: the one of all runs).", "FILE")] = None,
) -> None:
    """Show the cached responses: their number and tokens per model.

    A build calls a model only for responses that are not in the cache; --refresh calls it anyway, --no-cache does not
    use the cache. The cache is an SQLite database: remove the file to empty it.

    [bold]Example[/]

    pivot cache
    """
    path = file or Path(default_cache())
    if file is None and not path.exists():
        out.print(f"no answers are kept yet ({path}); builds with a model's policy or teacher keep them")
        return
    if not path.is_file():
        raise ConfigError(f"no call cache at {path}; builds with a model's policy or teacher make one")
    try:
        calls = CallCache(path)
    except CacheError as error:
        raise ConfigError(f"FILE: {error}") from error
    with closing(calls):
        counts = calls.counts()
    show_table(
        f"{path} ({path.stat().st_size / 1e6:.1f} MB)",
        ["model", "checkpoint", "role", "answers", "prompt tokens", "reply tokens", "newest"],
        [[model, served_as or "unknown", *more] for model, served_as, *more in counts],
    )
