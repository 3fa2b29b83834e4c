"""``pivot prune``: remove what a store or a folder of nights no longer needs."""

from typing import Annotated

import typer

from ..api import upkeep as api
from .console import ProgressBars, err, out, quoted, show_table, size_text
from .options import StoreAddress, option, store_argument


def prune(
    root: Annotated[StoreAddress, store_argument("DIR", "A store, or a folder of nights; a folder or s3:// address.")],
    keep: Annotated[
        str,
        option("Nights to keep: days such as 14d, or a number such as 30 (default: all).", "--keep", metavar="RULE"),
    ] = "",
    unfinished: Annotated[
        str, option("Give up parts that no run has worked on for so long.", "--unfinished", metavar="DAYS")
    ] = "7d",
    labels: Annotated[
        bool,
        typer.Option(
            "--labels/--keep-labels", help="Remove older label versions and leftovers of killed runs, or keep them."
        ),
    ] = True,
    reports: Annotated[bool, option("Also remove the reports next to kept stores.", "--reports")] = False,
    cache: Annotated[
        str,
        option(
            "Also remove answers of this age from the call cache of all runs, such as 90d.", "--cache", metavar="DAYS"
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
) -> None:
    """Remove older label versions, given-up parts, leftovers of killed runs, and old nights.

    Nothing that the manifest of a kept store needs is removed: the store verifies afterwards, with the same dataset.
    Nights are the stores in DIR, and in its folders, that are named by a day (2026-01-31); other stores are never
    removed, nor is the newest finished night. A night goes with its report. Stores that a run writes are left alone.

    [bold]Examples[/]

    pivot prune runs/first --dry-run

    pivot prune runs/nightly --keep 14d

    pivot prune runs/nightly --keep 30 --reports --cache 90d
    """
    with ProgressBars() as bars:
        pruned = api.prune(
            root,
            keep=keep,
            unfinished=unfinished,
            labels=labels,
            reports=reports,
            cache=cache,
            dry_run=dry_run,
            reporter=bars,
        )
    for line in pruned.kept:
        err.print(f"kept: {line}", soft_wrap=True)
    rows = [[each.kind, each.address, each.files, size_text(each.bytes)] for each in pruned.removals]
    if rows:
        show_table("To remove" if dry_run else "Removed", ["what", "where", "files", "size"], rows)
    what = "would be removed; nothing was changed" if dry_run else "removed"
    out.print(f"{size_text(pruned.bytes)} {what}" if rows else "nothing to remove", soft_wrap=True)
    if not dry_run and any(each.kind == "older labels" for each in pruned.removals):
        out.print(f"\nnext:\n  pivot du {quoted(root)}   what takes space now", soft_wrap=True)
