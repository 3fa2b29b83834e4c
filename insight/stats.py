"""The statistics of a store: the summarising views, their display, and export to files.

Every number comes from a named view (:mod:`pivot.datasets.sql.database`), so a query in DuckDB returns
the same ones. On a screen shares are in percent; files hold the views as they are.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from ..core.errors import ConfigError, StoreError
from ..core.storage import Address, parse_address, write_file
from ..datasets.sql.views import connect, query_table, run_query
from .report.plain import plain


class Format(StrEnum):
    """Output formats of statistics."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Summary:
    """One table of the summary: a view, and the query that shows it on a screen."""

    view: str
    title: str
    shown: str
    often_empty: bool = False
    """Whether the table is left out when it is empty, as it is for most stores."""
    upright: bool = False
    """Whether the screen shows the table transposed: it has environment, mode, and a column per number."""


SUMMARY = (
    Summary(
        "group_rates",
        "Groups of eight rollouts",
        """SELECT env AS environment, episodes, round(100 * success_rate, 1) AS "success %", groups,
           dropped, round(100 * all_fail_rate, 1) AS "all fail %", round(100 * sigma0_rate, 1) AS "σ = 0 %"
           FROM group_rates""",
    ),
    Summary(
        "incomplete",
        "Episodes that count in no rate",
        "SELECT env AS environment, status, stop_reason AS reason, episodes FROM incomplete",
        often_empty=True,
    ),
    Summary(
        "modes",
        "Failure modes",
        """SELECT env AS environment, failure_mode AS mode, failures, round(100 * share, 1) AS "share %",
           round(mean_pivot, 2) AS "mean pivot", round(mean_steps, 2) AS "mean steps" FROM modes""",
    ),
    Summary(
        "modes_by_step",
        "Pivot step",
        "PIVOT (SELECT env AS environment, failure_mode AS mode, pivot_step, failures FROM modes_by_step) "
        "ON pivot_step USING coalesce(sum(failures), 0)::INT GROUP BY environment, mode ORDER BY environment, mode",
        upright=True,
    ),
    Summary(
        "slack_at_pivot",
        "Slack at the pivot: turns left, less turns needed",
        """SELECT env AS environment, unit, sum(failures)::INT AS failures,
           round(sum(slack * failures) / sum(failures), 2) AS mean, min(slack) AS least, max(slack) AS most,
           round(100 * coalesce(sum(failures) FILTER (slack < 1), 0) / sum(failures), 1) AS "none left %"
           FROM slack_at_pivot GROUP BY env, unit ORDER BY env""",
    ),
    Summary(
        "savings",
        "Turns after the pivot: what stopping there would save",
        """SELECT env AS environment, failures, turns, turns_after AS "after the pivot",
           round(100 * saved, 1) AS "saved %", round(100 * mean_lead, 1) AS "mean of episodes %" FROM savings""",
    ),
    Summary(
        "bound_quality",
        "Certificates against a better reference",
        """SELECT env AS environment, kind, reference, failures, round(100 * agreement, 1) AS "same pivot %",
           round(100 * earlier / failures, 1) AS "earlier %", round(mean_delay, 2) AS "mean delay (steps)",
           round(mean_gap, 2) AS "mean gap before pivot"
           FROM bound_quality""",
        often_empty=True,
    ),
    Summary(
        "reject_kinds", "Rejected labels", "SELECT env AS environment, name AS reason, kind, labels FROM reject_kinds"
    ),
    Summary(
        "evidence",
        "What confirms the actions and levels of imported episodes",
        "SELECT env AS environment, evidence, labels, accepted FROM evidence WHERE evidence <> 'played'",
        often_empty=True,
    ),
    Summary(
        "writers",
        "Writers of guidance",
        """SELECT env AS environment, writer, labels, accepted, round(100 * accepted_rate, 1) AS "accepted %",
           round(mean_characters) AS "mean characters" FROM writers""",
    ),
    Summary(
        "proofs",
        "Labels that nobody proved a second time",
        "SELECT env AS environment, failures, unproved FROM proofs WHERE unproved > 0",
        often_empty=True,
    ),
)
"""Tables of ``pivot stats``, in order."""


def in_order(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return a table with columns that are named by numbers, such as steps, in numerical order."""
    order = sorted(range(len(names)), key=lambda index: int(names[index]) if names[index].isdecimal() else -1)
    return [names[index] for index in order], [[row[index] for index in order] for row in rows]


def csv_text(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a result as CSV; cells that hold lists or structs are JSON, and no text is a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    for row in (names, *rows):
        writer.writerow(map(_csv_cell, row))
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a cell of a CSV file; an apostrophe keeps spreadsheets from running a text as a formula."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    cell = plain(value, math.inf)
    return json.dumps(cell) if isinstance(cell, dict | list) else cell


def json_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return a result as JSON objects, one per row.

    Raises:
        ConfigError: two columns have one name.
    """
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"found several columns named {', '.join(twice)}, expected one each in JSON; rename them by AS"
        )
    return [dict(zip(names, plain(row, math.inf), strict=True)) for row in rows]


def save_result(root: Address, connection: duckdb.DuckDBPyConnection, sql: str, style: Format, path: Path) -> None:
    """Write the result of a query to a file, whole or not at all.

    Raises:
        ConfigError: the query is wrong; StoreError: the store is damaged, or the file cannot be written.
    """
    if style is Format.PARQUET:
        sink = io.BytesIO()
        pq.write_table(query_table(root, connection, sql), sink)
        write_file(path, sink.getvalue())
        return
    names, rows = run_query(root, connection, sql)
    text = csv_text(names, rows) if style is Format.CSV else json.dumps(json_rows(names, rows), indent=2) + "\n"
    write_file(path, text.encode())


def make_folder(folder: Path) -> None:
    """Make a folder for results.

    Raises:
        ConfigError: the path is a file. StoreError: the folder cannot be made.
    """
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; --out names a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}; choose another --out") from error


def save_summary(root: Address, connection: duckdb.DuckDBPyConnection, style: Format, folder: Path) -> list[str]:
    """Write every view of the summary to a separate file; return the file names. It raises the errors of a result."""
    names = [f"{each.view}.{style.value}" for each in SUMMARY]
    make_folder(folder)
    for each, name in zip(SUMMARY, names, strict=True):
        save_result(root, connection, f"SELECT * FROM {each.view}", style, folder / name)
    return names


def stats(root: str | Address) -> dict[str, Any]:
    """Return the summary of a store: for each view of ``pivot stats`` its rows; percentages are fractions.

    Args:
        root: the store, of an unfinished one its played shards; or a folder of nights.

    Raises:
        StoreError: the store is missing, or one of its files is missing or torn.
    """
    store = parse_address(root)
    with connect(store, [each.view for each in SUMMARY], unfinished=True) as connection:
        return {each.view: json_rows(*run_query(store, connection, f"SELECT * FROM {each.view}")) for each in SUMMARY}
