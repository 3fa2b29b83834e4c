"""Measure every performance claim against its baseline: ``make bench``, or with names of modules.

Prints each row when it is measured and keeps all of them in a JSON file; ``compare A.json B.json`` shows two such files
side by side. Claims are ratios measured side by side in one run: the machine may be busy, but it is equally busy for
both. The exit status is 1 when a required ratio is not reached.
"""

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pivot.benchmarks.harness import Results, Row, comparison
from rich.console import Console

MODULES = (
    "bench_solvers",
    "bench_closure",
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


def main(arguments: list[str]) -> int:
    """Run the chosen benchmarks or compare two files; return the exit status."""
    console = Console(width=150, highlight=False)
    if arguments[:1] == ["compare"] and len(arguments) == 3:
        console.print(comparison(Path(arguments[1]), Path(arguments[2])))
        return 0
    parser = argparse.ArgumentParser(prog="python -m pivot.benchmarks", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"default: all of {', '.join(MODULES)}")
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"), help="file of the rows; kept and extended")
    chosen = parser.parse_args(arguments)
    if unknown := sorted(set(chosen.modules) - {*MODULES, *IN_ENVIRONMENTS}):
        parser.error(f"unknown benchmark {unknown[0]}; known: {', '.join((*MODULES, *IN_ENVIRONMENTS))}")
    results, failed = Results(chosen.out), list[str]()
    for module in chosen.modules or MODULES:
        console.print(f"running {module} …")
        for row in _rows_of(module):
            console.print(f"{row}", markup=False)
            results.add(module, row)
            failed += [] if row.passed else [row.name]
    console.print(f"{len(failed)} rows failed{': ' * bool(failed)}{'; '.join(failed)}. All rows: {results.path}")
    return 1 if failed else 0


def _rows_of(module: str) -> Iterator[Row]:
    """Yield the rows of a benchmark as they are measured; an error adds a failed row, and the next benchmark runs."""
    try:
        yield from import_module(f"pivot.benchmarks.{module}").rows()
    except Exception as error:  # noqa: BLE001 - reported in the row
        yield Row(name=module, ours=None, passed=False, note=f"broke: {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
