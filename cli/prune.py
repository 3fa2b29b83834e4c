"""``pivot prune``: remove old nights."""

from typing import Annotated

import typer

from ..flows import prune as pruning
from .console import ProgressBars, err, out, show_table, size_text
from .options import StoreAddress, option, store_argument


def prune(
    root: Annotated[StoreAddress, store_argument("DIR", "A folder of nights, or its s3:// address.")],
    keep: Annotated[str, option("Nights to keep: days such as 14d, or a number such as 30.", "--keep", metavar="RULE")],
    cache: Annotated[
        str,
        option(
            "Also remove answers of this age from the call cache of all runs, such as 90d.", "--cache", metavar="DAYS"
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
) -> None:
    """Remove old nights with their reports.

    Nights are the finished stores in DIR that are named by a day (2026-01-31). Nothing else is removed, and the newest
    night never; a night that a run writes is left alone.

    [bold]Examples[/]

    pivot prune runs/nightly --keep 14d --dry-run

    pivot prune runs/nightly --keep 30 --cache 90d
    """
    with ProgressBars() as bars:
        pruned = pruning.prune(root, keep=keep, cache=cache, dry_run=dry_run, reporter=bars)
    for line in pruned.kept:
        err.print(f"kept: {line}", soft_wrap=True)
    rows = [[each.kind, each.address, each.files, size_text(each.bytes)] for each in pruned.removals]
    if rows:
        show_table("To remove" if dry_run else "Removed", ["what", "where", "files", "size"], rows)
    what = "would be removed; nothing was changed" if dry_run else "removed"
    out.print(f"{size_text(pruned.bytes)} {what}" if rows else "nothing to remove", soft_wrap=True)
