"""What the commands share: the consoles, the progress bars, and how an error reaches the user."""

from collections.abc import Sequence
from typing import Any

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

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

STAGE_NAMES = {
    "plan": "making levels",
    "rollout": "rolling out",
    "label": "labelling",
    "export": "exporting",
    "verify": "verifying",
}


class ProgressBars:
    """One bar a stage, counted in episodes; on a terminal only, elsewhere one line a stage."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=err,
        )
        self._live = err.is_terminal
        self._ids: dict[str, TaskID] = {}

    def __enter__(self) -> "ProgressBars":
        if self._live:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bars.stop()

    def start(self, stage: str, total: int) -> None:
        """Show a new bar."""
        name = STAGE_NAMES.get(stage, stage)
        if self._live:
            self._ids[stage] = self._bars.add_task(name, total=total)
        else:
            err.print(f"{name}: {total} episodes")

    def advance(self, stage: str, amount: int) -> None:
        """Move the bar on."""
        if self._live:
            self._bars.advance(self._ids[stage], amount)

    def finish(self, stage: str) -> None:
        """Fill the bar."""
        if self._live:
            bar = self._ids[stage]
            self._bars.update(bar, completed=self._bars.tasks[bar].total)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, name in enumerate(header):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows if row[index] is not None)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell_text(cell) for cell in row))
    out.print(table)


def cell_text(cell: Any) -> str:
    """Return a cell as text: floats with four digits, nothing for null."""
    if cell is None:
        return ""
    return f"{cell:.4f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell)


def percent(part: int, whole: int) -> str:
    """Return a share with one digit."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def show_error(message: str) -> None:
    """Print one clear error line."""
    err.print(f"[bold red]error:[/] {_escaped(message)}", soft_wrap=True)


def _escaped(message: str) -> str:
    return message.replace("[", "\\[")
