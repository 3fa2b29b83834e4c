"""Runs of the pipeline for tests: what a store holds byte by byte, and the command line as a process of its own."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pivot.datasets.store import Store

CLI = [sys.executable, "-c", "from pivot.__main__ import main; main()"]
"""The ``pivot`` command, wherever this interpreter finds the package."""

FREE_FOLDERS = ("calls", ".receipts", ".tmp", ".commit", ".lock", "manifest.json", "pivot.duckdb", ".probe")
"""What may differ between equal runs: latencies, and the files that hold digests of them."""


def config_of(tasks: int | Mapping[str, int] = 2, **fields: Any) -> dict[str, Any]:
    """Config of a small run: one environment with so many tasks, or several by name."""
    counts = {"sokoban": tasks} if isinstance(tasks, int) else tasks
    runs = {name: {"tasks": count, "settings": {}} for name, count in counts.items()}
    return {"environments": runs, "rollouts": 4, "tasks_per_shard": 1} | fields


def files_of(root: Path) -> list[str]:
    """Relative paths of all files of a store."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def fingerprint(root: Path) -> dict[str, str]:
    """SHA-256 by path of everything whose bytes are promised (spec section 9)."""
    kept = [name for name in files_of(root) if name.split("/")[0] not in FREE_FOLDERS]
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in kept}


def assert_nothing_is_torn(root: Path) -> None:
    """Every file under a final name can be read whole, at any moment of a run."""
    for name in files_of(root):
        if name.endswith(".parquet") and not name.startswith((".tmp/", ".commit/.tmp/")):
            pq.read_table(root / name)


def assert_whole(root: Path) -> None:
    """The manifest lists exactly the files of the store, and each as it is on disk."""
    store = Store.open(root)
    manifest = store.manifest()
    assert {name: store.storage.record(name) for name in manifest} == manifest
    own = {name for name in files_of(root) if not name.startswith(".")} - {"manifest.json", "pivot.duckdb"}
    assert own == set(manifest)


def pivot(
    *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, without a terminal."""
    return subprocess.run(
        [*CLI, *map(str, arguments)],
        env=clean_environment() | dict(env or {}),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def clean_environment() -> dict[str, str]:
    """This process's environment without what would steer Prefect or the shape of the output."""
    dropped = ("PREFECT_", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def error_lines(run: subprocess.CompletedProcess[str]) -> Sequence[str]:
    """The error lines of a run that must have failed in a clear way: no traceback, status 1."""
    assert run.returncode == 1, run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    return [line for line in run.stderr.splitlines() if line.startswith("error: ")]
