"""``pivot stats``: counts of a store, or SQL over it."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb

from ..core.errors import ConfigError, printable
from ..core.storage import Address
from ..datasets.sql.views import VIEWS, connect, run_query
from ..insight import stats as statistics
from ..insight.stats import SUMMARY, Format, csv_text, in_order, json_rows, save_result, save_summary
from .console import out, show_table, write_data
from .from_config import Flag, Form, from_config
from .opening import note_unfinished
from .options import AddressField, Options, OutputField


class StatsOptions(Options):
    """Options of ``pivot stats``."""

    root: AddressField
    """Folder of a store, or of several, or its s3:// address."""
    query: str | None = None
    format: Format = Format.TABLE
    """Output format; percentages are fractions except in the table."""
    out: OutputField | None = None
    """Folder for one file per view, or file for the result of QUERY."""
    allow_external: bool = False
    """Let QUERY read and write other files and load extensions, too."""


VIEW_NAMES = f"SQL to run instead, over the views {', '.join(VIEWS)}."
FLAGS = {"root": Flag(argument="DIR"), "query": Flag(argument="QUERY", help=VIEW_NAMES)}


@from_config(Form("stats", StatsOptions, FLAGS), file=False)
def stats(options: StatsOptions) -> None:
    """Show failure modes, pivot steps, slack, group rates and rejects, or run your own SQL over the store.

    The views are computed from the tables, in memory. Nothing in the store's pivot.duckdb is run, so a store from
    elsewhere can be examined safely. A query sees the store alone. The view failures has settings such as
    boxes as columns: pivot stats DIR "DESCRIBE failures" lists them all. Steps count from 0.

    [bold]Examples[/]

    pivot stats runs/first

    pivot stats runs/first "SELECT failure_mode, count(*) FROM failures WHERE pivot_step = 3 AND boxes = 2
    GROUP BY 1 ORDER BY 2 DESC"

    pivot stats runs/first "FROM pivots LIMIT 20"

    pivot stats runs/first --format parquet --out statistics
    """
    root, sql, style, target = options.root, options.query, options.format, options.out
    if sql is not None and not sql.isascii() and any(0xDC80 <= ord(character) <= 0xDCFF for character in sql):
        raise ConfigError("QUERY: it is not text in UTF-8; write it in that encoding")
    if options.allow_external and sql is None:
        raise ConfigError("--allow-external: found no QUERY, which it is for; give one, or leave it out")
    _check_target(style, target, sql)
    queries = [each.view for each in SUMMARY] if sql is None else [sql]
    note_unfinished(root)
    with connect(root, queries, external=options.allow_external, unfinished=True) as connection:
        if target is not None:
            _save(root, connection, sql, style, target)
        elif sql is not None:
            _show_result(root, connection, sql, style)
        elif style is Format.JSON:
            write_data(json.dumps(statistics.stats(root), indent=2, ensure_ascii=True) + "\n")
        else:
            _show_summary(root, connection)


def _check_target(style: Format, target: Path | None, sql: str | None) -> None:
    if style is Format.TABLE and target is not None:
        raise ConfigError(f"a table is for the screen; say how to write {target}: --format csv, json or parquet")
    if target is None and (style is Format.PARQUET or (style is Format.CSV and sql is None)):
        where = "a file" if sql is not None else "a folder, which gets a file for each view"
        raise ConfigError(f"--format {style.value} needs --out PATH: {where}")


def _save(root: Address, connection: duckdb.DuckDBPyConnection, sql: str | None, style: Format, target: Path) -> None:
    if sql is not None:
        if target.is_dir():
            raise ConfigError(f"{target} is a folder; --out of a query names the file to write")
        save_result(root, connection, sql, style, target)
        out.print(f"wrote {target}")
        return
    names = save_summary(root, connection, style, target)
    out.print(f"wrote to {target}: {', '.join(names)}")


def _show_result(root: Address, connection: duckdb.DuckDBPyConnection, sql: str, style: Format) -> None:
    names, rows = in_order(*run_query(root, connection, sql))
    if style is Format.CSV:
        if sys.stdout.isatty():  # terminals interpret control characters
            rows = [tuple(printable(cell) if isinstance(cell, str) else cell for cell in row) for row in rows]
        write_data(csv_text(names, rows))
    elif style is Format.JSON:
        write_data(json.dumps(json_rows(names, rows), indent=2, ensure_ascii=True) + "\n")
    else:
        show_table("", names, rows)


def _show_summary(root: Address, connection: duckdb.DuckDBPyConnection) -> None:
    for each in SUMMARY:
        names, rows = in_order(*run_query(root, connection, each.shown))
        if rows and each.upright:
            for env, header, turned in _turned(names, rows):
                show_table(f"{each.title}: {env}", header, turned)
        elif rows or not each.often_empty:
            show_table(each.title, names, rows) if rows else out.print(f"{each.title}: none")


def _turned(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    """Yield a table per environment, its columns made rows: twenty-five steps fit under each other, not side by side.

    ``rows`` begin with environment and mode, then hold a number for each of the other ``names``; names of which an
    environment has none at all are left out.
    """
    for env, group in groupby(rows, lambda row: str(row[0])):
        modes = list(group)
        columns = [list(column) for column in zip(*(row[2:] for row in modes), strict=True)]
        turned = [[name, *counts] for name, counts in zip(names[2:], columns, strict=True) if any(counts)]
        yield env, ["step", *(str(row[1]) for row in modes)], turned
