"""``pivot rehearse``: both stages on this machine with random weights, before a real run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.storage import write_file
from ..flows import training
from .console import err, out, show_table

COLUMNS = {
    "s": "seconds",
    "tokens/s": "tokens_per_second",
    "idle": "idle",
    "FLOPs": "utilisation",
    "GiB": "peak_gib",
    "dry run": "estimate_gib",
}
"""Figures of the table by heading; the file has all."""


def rehearse(
    file: Annotated[Path, typer.Option("--out", metavar="FILE.json", help="File of all figures, JSON.")],
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME|DIR", help="qwen2.5-vl-3b, qwen3-vl-2b, tiny (default on a CPU), or a folder."),
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="N", min=0, help="Time after which no further part begins.")] = 10.0,
) -> None:
    """Try both stages with random weights: speed, memory against --dry-run, idle time, kill and resume.

    Nothing is downloaded. The table ends with the phases that take most of an update.

    [bold]Examples[/]

    pivot rehearse --out rehearsal.json

    pivot rehearse --model qwen3-vl-2b --minutes 10 --out rehearsal.json
    """
    result = training.rehearse(
        model, minutes=minutes, report=lambda line: err.print(line, soft_wrap=True, markup=False)
    )
    write_file(file, json.dumps(result, indent=2).encode())
    rows = [[row["part"], *(_cell(row, name) for name in COLUMNS.values()), _note(row)] for row in result["rows"]]
    show_table(f"Rehearsal of {result['model']} on {result['device']}", ["part", *COLUMNS, "note"], rows)
    for line in result["slow"]:
        out.print(f"slow: {line}", soft_wrap=True, markup=False)


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    return "" if value is None else f"{value:g}"


def _note(row: dict[str, Any]) -> str:
    if "gap" in row:
        return f"gap {row['gap']:g}, ratios {row['ratio_min']:g} to {row['ratio_max']:g}"
    return row.get("skipped") or row.get("failed") or ("resumed" if row.get("complete") else "")
