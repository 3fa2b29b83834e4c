"""The rehearsal of both stages, tiny and on a CPU."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.tests.cli.command_line import run as command
from pivot.tests.training import forks, together
from pivot.training import rehearsal

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("processes")]


class Fork:
    """A process of a command in a fork, with the part of ``subprocess.Popen`` that the rehearsal uses."""

    def __init__(self, command: Sequence[str], stdout: Any = None, stderr: Any = None) -> None:
        assert command[:3] == [sys.executable, "-m", "pivot"]
        folder = Path(command[-1] if "--resume" not in command else command[-2]).parent
        self._process = forks.start(together.pivot, *command[3:], folder=folder, log=folder / "log")
        self.kill, self.wait = self._process.kill, self._process.join

    def poll(self) -> int | None:
        """Return the status, if it has ended."""
        return self._process.exitcode


def _run(command: Sequence[str], **_: Any) -> Any:
    process = Fork(command)
    process.wait()
    return SimpleNamespace(returncode=process.poll(), stdout="", stderr="")


def test_a_tiny_rehearsal_runs_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch a part that fails, does nothing, or does not go on after it was killed."""
    sizes = {"batch": 1, "tokens": 4, "horizon": 1, "rollouts": 2, "replies": (2, 4), "rank": 4}
    monkeypatch.setattr(rehearsal, "SMALL", rehearsal.Sizes(**sizes))
    monkeypatch.setattr(rehearsal, "UPDATES", 2)
    monkeypatch.setattr(rehearsal, "subprocess", SimpleNamespace(Popen=Fork, run=_run))
    shown = command("rehearse", "--model", "tiny", "--out", tmp_path / "rehearsal.json")
    result = json.loads((tmp_path / "rehearsal.json").read_text())
    rows = {row["part"]: row for row in result["rows"]}
    assert [name for name, row in rows.items() if "failed" in row] == []
    assert [name for name, row in rows.items() if "skipped" in row] == ["II: flash_attn"]
    assert [row["updates"] for name, row in rows.items() if name.startswith("I:")] == [2, 2]
    for name in ("2 at a time", "4 at a time", "recomputed"):
        row = rows[f"II: {name}"]
        assert row["turns"] == (4 if name.startswith("4") else 2) and 0 <= row["idle"] < 1 and row["estimate_gib"] > 0
    empty = rows["II: arm empty"]
    assert empty["gap"] == 0.0
    assert 0.9 < empty["ratio_min"] <= 1 <= empty["ratio_max"] < 1.1  # bfloat16, in other micro-batches
    assert rows["kill, resume"]["updates"] == [1, 2, 3] and rows["kill, resume"]["complete"]
    assert len(result["slow"]) == 3 and all(f"slow: {line}" in " ".join(shown.split()) for line in result["slow"])


def test_the_slowest_phases_are_named() -> None:
    rows = [{"part": "a", "phases": {"rollout": 6.0, "score": 4.0}}, {"part": "b", "phases": {"update": 1.0}}, {}]
    assert rehearsal.slow(rows)[:2] == ["update, b: 1.0 s, 100% of the update", "rollout, a: 6.0 s, 60% of the update"]
