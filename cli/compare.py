"""``pivot compare``: two stores side by side."""

import json
from itertools import groupby
from typing import Annotated

import typer

from ..insight.compare import HEADER, compare_stores, screen_rows
from ..insight.stats import Format, csv_text
from .console import out, show_table, write_data
from .options import StoreAddress, store_argument

CHOICES = "[table|csv|json]"
_NO_PARQUET = "pivot compare gives out a table, CSV or JSON"


def compare(
    old: Annotated[StoreAddress, store_argument("OLD", "Folder of a finished store, such as last week's.")],
    new: Annotated[StoreAddress, store_argument("NEW", "Folder of the store to compare with OLD.")],
    style: Annotated[Format, typer.Option("--format", metavar=CHOICES, help="Output format.")] = Format.TABLE,
) -> None:
    """Show what changed from one store to another: success, zero-variance groups, modes, pivots, slack.

    In brackets are 95 % intervals over levels. Levels that are in both stores (equal state and instruction) are
    paired, which gives narrower intervals of the difference. * marks an interval of the difference that excludes 0,
    over at least 20 levels; among twenty rows one does so by chance.

    The rollouts of two runs of pivot train rl are stores, too: RUN/rollouts.

    [bold]Example[/]

    pivot compare runs/monday runs/tuesday
    """
    if style is Format.PARQUET:
        raise typer.BadParameter(_NO_PARQUET, param_hint="--format")
    comparisons = compare_stores(old, new)
    rows = [each.row() for each in comparisons]
    if style is Format.JSON:
        write_data(json.dumps(rows, indent=2) + "\n")
    elif style is Format.CSV:
        write_data(csv_text(list(rows[0]), [list(row.values()) for row in rows]))
    else:
        out.print(f"{old} (old) against {new} (new)")
        for env, some in groupby(comparisons, lambda each: each.env):
            show_table(env, HEADER, screen_rows(list(some)))
        out.print("*: the 95 % confidence interval of the difference excludes 0 (needs 20 levels)")
        for env, levels, common in dict.fromkeys((each.env, each.levels, each.common) for each in comparisons):
            if common < levels:
                out.print(f"{env}: only {common} of {levels} levels are in both stores, which widens the intervals")
