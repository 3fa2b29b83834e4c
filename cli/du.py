"""``pivot du``: what takes space in a store or a folder of nights."""

import json
from collections import Counter
from enum import StrEnum
from typing import Annotated

import typer

from ..flows.disk_usage import DiskUsage, disk_usage
from .console import out, percent, show_table, size_text, write_data
from .options import StoreAddress, store_argument


class Style(StrEnum):
    """Forms of the output."""

    TABLE = "table"
    JSON = "json"


def du(
    root: Annotated[StoreAddress, store_argument("DIR", "A store, or a folder of stores; a folder or s3:// address.")],
    style: Annotated[
        Style, typer.Option("--format", help="How to show it; json has a row per store and kind.")
    ] = Style.TABLE,
) -> None:
    """Show what takes space: nights, tables, labels, reports, probe, leftovers of killed runs.

    Every file below DIR is counted once, so the sum is that of the files on disk. Nothing is changed. The call cache
    of models is elsewhere: pivot cache shows its size.

    [bold]Examples[/]

    pivot du runs/first

    pivot du runs/nightly --format json
    """
    usage = disk_usage(root)
    if style is Style.JSON:
        write_data(json.dumps(usage.record(), indent=2, ensure_ascii=True) + "\n")
        return
    _show(usage)


def _show(usage: DiskUsage) -> None:
    stores = {row.store: None for row in usage.rows}
    if len(stores) > 1:
        totals = {store: [each for each in usage.rows if each.store == store] for store in stores}
        rows = [
            [store, sum(each.files for each in rows), size_text(sum(each.bytes for each in rows))]
            for store, rows in totals.items()
        ]
        show_table(f"Stores and reports below {usage.root}", ["folder", "files", "size"], rows)
    sizes, files = Counter[str](), Counter[str]()
    for row in usage.rows:
        sizes[row.kind] += row.bytes
        files[row.kind] += row.files
    rows = [[kind, files[kind], size_text(size), percent(size, usage.bytes)] for kind, size in sizes.most_common()]
    show_table(usage.root, ["kind", "files", "size", "share"], rows)
    out.print(f"{usage.files} files, {size_text(usage.bytes)}", soft_wrap=True)
