"""Runs the installed example through every command in one process, and prints the outputs as one line of JSON.

Run as ``python journey.py FOLDER TEST_FILE`` by `test_external.py`, in a virtual environment beside ours.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.cli import app
from pivot.core.errors import PivotError
from typer.testing import CliRunner

import datasets


def command(*arguments: str | Path) -> str:
    """Run one command; return its output, with the error that it ended with."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, PivotError):
        raise result.exception
    return result.output + (f"error: {result.exception}" if result.exception else "")


def journey(folder: Path, tests: Path) -> dict[str, Any]:
    """Run all commands."""
    store, liars = folder / "store", folder / "liars"
    shown: dict[str, Any] = {
        "build": command(
            "build", "corridor", "hearsay", "--out", store, "--tasks", "6", "--rollouts", "6", "--workers", "1"
        ),
        "verify": command("verify", store, "--workers", "1"),
        "stats": command("stats", store),
        "peek": command("peek", store, "--env", "corridor"),
        "help": command("build", "--help"),
        "settings": command("doctor", "corridor"),
    }
    rows: Any = datasets.load_dataset(str(store / "dataset"), "corridor", cache_dir=str(folder / "cache"))
    modes = rows["train"].features["failure_mode_id"]
    shown["modes"] = modes.names
    shown["rows"] = [[row["failure_mode"], modes.int2str(row["failure_mode_id"])] for row in rows["train"]]
    policy = {"name": "sleepwalker", "options": {"right": 0.5}}
    pivot.build({"environments": {"liar": {"tasks": 3, "settings": {}}}, "policy": policy, "rollouts": 4}, liars)
    shown["refused"] = command("stats", liars) + command("verify", liars, "--workers", "1")
    labels = pq.read_table(liars / "labels").to_pylist()
    shown["lies"] = [[row["pivot_step"], row["proved"], row["accepted"], str(row["reject_reasons"])] for row in labels]
    shown["learnt"] = len(pq.read_table(liars / "dataset" / "liar").to_pylist())
    shown["contracts"] = int(pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tests)]))
    return shown


if __name__ == "__main__":
    outputs = journey(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write("\n" + json.dumps(outputs) + "\n")
