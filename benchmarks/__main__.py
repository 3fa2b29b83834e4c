"""Measure every performance claim against its baseline and print one table: ``make bench``, or with names of modules.

Claims are ratios measured side by side in one run: the machine may be busy, but it is equally busy for both. The exit
status is 1 when a required ratio is not reached.
"""

import argparse
import sys
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.table import Table

MODULES = (
    "bench_solvers",
    "bench_labelling",
    "bench_collage",
    "bench_navigation",
    "bench_primitiveskill",
    "bench_export",
    "bench_svg",
    "bench_serving",
    "bench_busy",
    "bench_pipeline",
    "bench_engines",
    "bench_stats",
    "bench_analyzer",
)
IN_ENVIRONMENTS = ("bench_training", "bench_stage2")
"""Run by name, where PyTorch is installed: ``make bench`` does."""


def main() -> int:
    """Run the chosen benchmarks; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pivot.benchmarks", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"default: all of {', '.join(MODULES)}")
    chosen = parser.parse_args().modules or MODULES
    if unknown := sorted(set(chosen) - {*MODULES, *IN_ENVIRONMENTS}):
        parser.error(f"unknown benchmark {unknown[0]}; known: {', '.join((*MODULES, *IN_ENVIRONMENTS))}")
    console = Console(width=150)
    table = Table(title="Benchmarks", title_justify="left")
    for name in ("claim", "ours", "baseline", "ratio", "required", "", "note"):
        table.add_column(name, overflow="fold")
    passed = True
    for module in chosen:
        console.print(f"running {module} …")
        for row in _rows_of(module):
            passed &= row["passed"]
            table.add_row(
                row["name"],
                _number(row["ours"]),
                _number(row["baseline"]),
                _number(row["ratio"]),
                _number(row["required"]),
                "[green]pass[/]" if row["passed"] else "[red]FAIL[/]",
                row["note"],
            )
    console.print(table)
    return 0 if passed else 1


def _rows_of(module: str) -> list[dict[str, Any]]:
    """Return the rows of a benchmark; one that breaks has one failed row, and the others are shown all the same."""
    try:
        return import_module(f"pivot.benchmarks.{module}").rows()
    except Exception as error:  # noqa: BLE001 - told in the table
        nothing = dict.fromkeys(("ours", "baseline", "ratio", "required"), "-")
        return [nothing | {"name": module, "passed": False, "note": f"broke: {type(error).__name__}: {error}"}]


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
