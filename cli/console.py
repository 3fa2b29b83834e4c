"""Consoles, progress bars and error lines of all commands.

Text may be untrusted: from a store, a server, a file. It has no effect on the terminal: control characters appear as
escapes, ``[markup]`` as text. Only :func:`styled` gives a style, to text of our own.
"""

import io
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ..core.errors import printable
from ..core.lines import STAGE_NAMES, Lines, unit_of
from ..core.progress import Reporter


def styled(*parts: str | tuple[str, str]) -> Text:
    """Join parts to one line; a part is a text, or a pair of text and style."""
    pairs = (part if isinstance(part, tuple) else (part, "") for part in parts)
    return Text.assemble(*((printable(text), style) for text, style in pairs))


class PlainConsole(Console):
    """Prints texts unchanged, line by line."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; see the base class. A string is never read as markup."""
        super().print(*(_lines(each) if isinstance(each, str) else each for each in objects), **options)


def _lines(text: str) -> Text:
    return Text("\n".join(map(printable, text.split("\n"))))


out = PlainConsole(highlight=False)
err = PlainConsole(stderr=True, highlight=False)


class ProgressBars(Reporter):
    """One bar a stage; on a terminal only, elsewhere a line every 5 % or minute."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=err,
        )
        self._live = err.is_terminal
        self._lines = Lines(lambda line: err.print(line, soft_wrap=True), STAGE_NAMES)
        self._ids: dict[str, TaskID] = {}

    def __enter__(self) -> "ProgressBars":
        if self._live:
            self._bars.start()
        else:
            self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bars.stop()
        else:
            self._lines.__exit__()

    def start(self, stage: str, total: int) -> None:
        """Show a new bar."""
        if self._live:
            self._ids[stage] = self._bars.add_task(STAGE_NAMES.get(stage, stage), total=total, unit=unit_of(stage))
        else:
            self._lines.start(stage, total)

    def advance(self, stage: str, amount: int) -> None:
        """Move the bar on."""
        if self._live:
            self._bars.advance(self._ids[stage], amount)
        else:
            self._lines.advance(stage, amount)

    def note(self, line: str) -> None:
        """Show a line."""
        err.print(line, soft_wrap=True)

    def finish(self, stage: str) -> None:
        """Fill the bar."""
        if self._live:
            bar = self._ids[stage]
            self._bars.update(bar, completed=self._bars.tasks[bar].total)
        else:
            self._lines.finish(stage)


def write_data(text: str) -> None:
    """Write CSV or JSON to standard output: in UTF-8, whatever the terminal's encoding is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


LONGEST_WORD = 16
"""Characters of a word that a table does not break."""


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, with numbers aligned to the right; a table wider than the screen is printed row by row."""
    names = [printable(name) for name in header]
    cells = [[cell_text(cell) for cell in row] for row in rows]
    columns = zip(*([Text(name) for name in names], *cells), strict=True)
    words = [[cell_len(word) for cell in column for word in cell.plain.split()] for column in columns]
    least = [min(max(lengths, default=0), LONGEST_WORD) for lengths in words]
    if sum(least) + 3 * len(least) >= out.width:
        _show_rows(title, names, cells)
        return
    table = Table(title=Text(printable(title)), title_justify="left", title_style="bold", header_style="bold")
    for index, name in enumerate(names):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows if row[index] is not None)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold", min_width=least[index])
    for row in cells:
        table.add_row(*row)
    out.print(table)


def _show_rows(title: str, names: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """Print one block of lines per row, with one line per column."""
    if title:
        out.print(styled((title, "bold")))
    for number, row in enumerate(rows, 1):
        table = Table(title=Text(f"row {number} of {len(rows)}"), title_justify="left", show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            table.add_row(Text(name), cell)
        out.print(table)


def cell_text(cell: Any) -> Text:
    """Return the text of a cell: floats with four digits, nothing for null, one line per line of a text."""
    if isinstance(cell, Text):
        return cell
    if cell is None:
        return Text()
    return _lines(f"{cell:.4f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell))


def percent(part: int, whole: int) -> str:
    """Return a share with one digit."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def resuming(message: str) -> str:
    """Return a message whose advice keeps what a build has finished: ``--refresh`` would discard it once more."""
    if sys.argv[1:2] != ["build"] or "--refresh" not in sys.argv:
        return message
    return re.sub(r"\bagain(?= to |; finished| with fewer)", "again without --refresh", message)


def show_error(message: str) -> None:
    """Print one clear error line."""
    err.print(styled(("error:", "bold red"), f" {resuming(message)}"), soft_wrap=True)


def quoted(path: object) -> str:
    """Return a path for a command line that can be pasted."""
    return shlex.quote(str(path))


def warn(message: str) -> None:
    """Print one line of warning."""
    err.print(styled(("warning:", "yellow"), f" {message}"), soft_wrap=True)
