"""Rows of benchmarks: their record, the file that keeps them, the comparison of two such files, and child processes."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

PACKAGES = ("pivot-vlm", "numpy", "numba", "pyarrow", "pillow", "isal", "datasets", "prefect", "torch", "trl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claim with its measured figures."""

    name: str
    ours: float | None
    """None for a benchmark that broke."""
    baseline: float | None = None
    """Figure of a straightforward program for the same task, or the limit."""
    ratio: float | None = None
    required: float | None = None
    """Required ratio or figure; None for a row without a claim."""
    passed: bool = True
    note: str

    def __str__(self) -> str:
        """Return the figures on one line and the note on the next."""
        names = ("ours", "baseline", "ratio", "required")
        figures = [f"{name} {value:.4g}" for name in names if (value := getattr(self, name)) is not None]
        verdict = "pass" if self.passed else "FAIL"
        return f"{verdict}  {self.name}{': ' * bool(figures)}{', '.join(figures)}\n      {self.note}"


class Results:
    """A JSON file with the machine, the versions and all rows so far; rewritten after every row."""

    def __init__(self, path: Path) -> None:
        """Append to a file that exists: ``make bench`` measures in two Python environments."""
        self.path = path
        before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._content = {
            "machine": _machine(),
            "versions": before.get("versions", {}) | dict(_versions()),
            "rows": before.get("rows", []),
        }

    def add(self, module: str, row: Row) -> None:
        """Append a row and write the file."""
        self._content["rows"].append({"module": module} | asdict(row))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._content, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.path)


def _machine() -> dict[str, str | float]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def comparison(before: Path, after: Path) -> Table:
    """Return a table of the rows of two result files; a missing row is shown as a dash."""
    sides = [
        {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]} for path in (before, after)
    ]
    table = Table(title=f"{before} and {after}", title_justify="left")
    for name in ("claim", "ours", "", "change", "ratio", "", "passed", ""):
        table.add_column(name, overflow="fold")
    for name in sides[0] | sides[1]:
        pair = [side.get(name, {}) for side in sides]
        ours, ratios, passed = ([row.get(field) for row in pair] for field in ("ours", "ratio", "passed"))
        change = f"{ours[1] / ours[0] - 1:+.1%}" if all(ours) else "-"
        table.add_row(
            name, *map(_figure, ours), change, *map(_figure, ratios), *({None: "-"}.get(p, str(p)) for p in passed)
        )
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def output_of(command: Sequence[str], stdin: str = "") -> str:
    """Run a program and return its output.

    Raises:
        RuntimeError: it failed; the message ends with the last lines that it printed.
    """
    child = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if child.returncode:
        last = "\n".join((child.stdout + child.stderr).splitlines()[-12:])
        raise RuntimeError(f"a child process ended with status {child.returncode}:\n{last}")
    return child.stdout
