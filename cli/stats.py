"""``pivot stats``: counts of a store, or SQL over it."""

import csv
import sys
from itertools import groupby
from typing import Annotated

import typer

from ..datasets.predictability import Reach, predictors_reach
from ..datasets.store import Store
from ..datasets.views import VIEWS, connect, query, run_query
from ..errors import ConfigError
from .console import out, show_table, visible
from .options import StorePath


def stats(
    root: StorePath,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="QUERY", help=f"Run a query instead; views: {', '.join(VIEWS)}.")
    ] = None,
    predictors: Annotated[
        bool,
        typer.Option(
            "--predictors",
            help="Show what trivial predictors of pivot and mode reach on the dataset, without looking at a picture.",
        ),
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the result of --sql as CSV.")] = False,
    allow_external: Annotated[
        bool,
        typer.Option("--allow-external", help="Let --sql read and write other files and load extensions, too."),
    ] = False,
) -> None:
    """Show failure modes, pivot steps, group rates and rejects, or run your own SQL over the store.

    The views are made anew from the tables, in memory; nothing that the store's pivot.duckdb holds is run, so a store
    from elsewhere can be looked at safely. A query sees the store alone.

    [bold]Examples[/]

    pivot stats runs/first --predictors

    pivot stats runs/first --sql "select failure_mode, count(*) from failures group by 1"
    """
    store = Store.open(root)
    if predictors and sql is not None:
        raise ConfigError("--predictors and --sql are two reports; ask for one at a time")
    if predictors:
        _show_predictors(store)
        return
    if as_csv and sql is None:
        raise ConfigError("--csv prints the result of a query; give one with --sql QUERY")
    if sql is not None:
        names, rows = query(root, sql, external=allow_external)
        if as_csv:
            if sys.stdout.isatty():  # a terminal obeys what a file only keeps
                rows = [[visible(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
            writer = csv.writer(sys.stdout)
            writer.writerow(names)
            writer.writerows(rows)
        else:
            show_table("", names, rows)
        return
    with connect(root) as connection:
        for title, statement in _OVERVIEW:
            names, rows = run_query(root, connection, statement)
            if rows or title not in _SHOWN_WHEN_FILLED:
                show_table(title, names, rows) if rows else out.print(f"{title}: none")


def _show_predictors(store: Store) -> None:
    for env, reached in groupby(predictors_reach(store), lambda each: each.env):
        rows = list(reached)
        title = f"{env}: fitted on {rows[0].train} failures of the training side, {rows[0].validation} unseen"
        show_table(title, Reach.CELLS, [each.cells for each in rows])


_OVERVIEW = (
    (
        "Groups of eight rollouts",
        """SELECT env AS environment, episodes, round(100 * success_rate, 1) AS "success %", groups,
           short_blocks AS short, round(100 * all_fail_rate, 1) AS "all fail %",
           round(100 * sigma0_rate, 1) AS "σ = 0 %"
           FROM group_rates""",
    ),
    (
        "Failure modes",
        """SELECT env AS environment, failure_mode AS mode, count(*) AS failures,
           round(100 * count(*) / sum(count(*)) OVER (PARTITION BY env), 1) AS "share %",
           round(avg(pivot_step), 2) AS "mean pivot", round(avg(num_steps), 2) AS "mean steps"
           FROM failures WHERE failure_mode IS NOT NULL GROUP BY env, failure_mode ORDER BY env, failures DESC""",
    ),
    (
        "Pivot step",
        "PIVOT (SELECT env AS environment, failure_mode AS mode, pivot_step, failures FROM modes_by_step) "
        "ON pivot_step USING coalesce(sum(failures), 0)::INT GROUP BY environment, mode ORDER BY environment, mode",
    ),
    (
        "Certificates against a better reference",
        """SELECT env AS environment, kind, reference, failures, round(100 * agreement, 1) AS "same pivot %",
           round(100 * earlier / failures, 1) AS "earlier %", round(mean_delay, 2) AS "mean delay (steps)",
           round(mean_gap, 2) AS "mean gap before pivot"
           FROM bound_quality""",
    ),
    (
        "Rejected labels",
        "SELECT env AS environment, name AS reason, kind, count(*) AS labels FROM rejects GROUP BY ALL ORDER BY ALL",
    ),
    (
        "Labels that nobody proved a second time",
        """SELECT env AS environment, count(*) AS unproved FROM failures
           WHERE proved IS NULL AND pivot_step IS NOT NULL GROUP BY env ORDER BY env""",
    ),
)


_SHOWN_WHEN_FILLED = {"Certificates against a better reference", "Labels that nobody proved a second time"}
"""Tables that most environments have nothing to say in."""
