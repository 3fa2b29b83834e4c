"""The rehearsal of both stages, tiny and on a CPU."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.tests.cli.command_line import run as command
from pivot.training.rehearsal import slow

pytestmark = pytest.mark.train


def test_a_tiny_rehearsal_runs_every_part(tmp_path: Path) -> None:
    """Catch a part of the rehearsal that fails on a machine without a GPU, or that reports nothing."""
    shown = command("rehearse", "--model", "tiny", "--out", tmp_path / "rehearsal.json")
    result = json.loads((tmp_path / "rehearsal.json").read_text())
    rows = {row["part"]: row for row in result["rows"]}
    assert [name for name, row in rows.items() if "failed" in row] == []
    assert [name for name, row in rows.items() if "skipped" in row] == ["II: flash_attn"]
    assert [row["updates"] for name, row in rows.items() if name.startswith("I:")] == [5, 5]
    for name in ("4 at a time", "8 at a time", "recomputed"):
        row = rows[f"II: {name}"]
        assert row["turns"] == (16 if name.startswith("8") else 8) and 0 <= row["idle"] < 1 and row["estimate_gib"] > 0
    empty = rows["II: arm empty"]
    assert empty["gap"] == 0.0
    assert 0.9 < empty["ratio_min"] <= 1 <= empty["ratio_max"] < 1.1  # bfloat16, in other micro-batches
    assert rows["kill, resume"]["updates"] == [1, 2, 3] and rows["kill, resume"]["complete"]
    assert len(result["slow"]) == 3 and all(f"slow: {line}" in " ".join(shown.split()) for line in result["slow"])


def test_the_slowest_phases_are_named() -> None:
    rows = [{"part": "a", "phases": {"rollout": 6.0, "score": 4.0}}, {"part": "b", "phases": {"update": 1.0}}, {}]
    assert slow(rows)[:2] == ["update, b: 1.0 s, 100% of the update", "rollout, a: 6.0 s, 60% of the update"]
