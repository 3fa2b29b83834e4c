"""Two runs of Stage II side by side."""

import json
from pathlib import Path
from typing import Any

import pytest
from pivot.core.errors import TrainingError
from pivot.tests.cli.command_line import run
from pivot.training.policy_rl.compare_runs import LAST, compare_runs


def _run(folder: Path, successes: list[float], *, env: str = "sokoban", arm: str = "mp", **more: Any) -> Path:
    folder.mkdir()
    record = {"stage": "rl", "config": {"env": env, "settings": {}, "arm": arm, "seed": 0}}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    lines = [{"step": 0, "validation": {"success": {"value": 0.25}}}]
    for step, success in enumerate(successes, 1):
        lines.append({"step": step, "success": success, "kl": None, "seconds": {"rollout": 2.0, "score": 1.0} | more})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def test_figures_are_means_over_the_last_updates_that_both_have(tmp_path: Path) -> None:
    old = _run(tmp_path / "old", [0.0] * 5 + [0.5] * LAST + [1.0] * 7, arm="vanilla_grpo")
    new = _run(tmp_path / "new", [0.0] * 5 + [0.75] * LAST, analyze=0.5)
    compared = compare_runs(old, new)
    assert compared.updates == 5 + LAST
    assert compared.settings == {"arm": ("vanilla_grpo", "mp")}
    rows = {row.measure: row for row in compared.rows}
    assert (rows["success"].old, rows["success"].new, rows["success"].difference) == (0.5, 0.75, 0.25)
    assert (rows["seconds"].old, rows["seconds"].new) == (3.0, 3.5)
    assert (rows["seconds: analyze"].old, rows["seconds: analyze"].new) == (0.0, 0.5)
    assert "kl" not in rows, "a figure that neither has"


def test_both_are_shown(tmp_path: Path) -> None:
    shown = run("compare", _run(tmp_path / "old", [0.5], arm="vanilla_grpo"), _run(tmp_path / "new", [0.75]))
    assert "setting arm: vanilla_grpo -> mp" in shown
    assert "0.25" in shown
    assert "seconds: rollout" in shown


def test_runs_are_given_out_as_data_with_intervals(tmp_path: Path) -> None:
    old, new = _run(tmp_path / "old", [0.5, 0.25, 0.75]), _run(tmp_path / "new", [0.75, 0.5, 1.0], arm="oracle")
    with (new / "metrics.jsonl").open("a", encoding="utf-8") as lines:
        held_out = {"success": {"value": 0.75, "low": 0.5, "high": 1.0}}
        lines.write(json.dumps({"step": 3, "success": 1.0, "seconds": {}, "validation": held_out}) + "\n")
    data = json.loads(run("compare", old, new, "--format", "json"))
    assert (data["updates"], data["settings"]) == (3, {"arm": ["mp", "oracle"]})
    rows = {row["measure"]: row for row in data["rows"]}
    success = rows["success"]
    assert success["difference"] == success["difference_low"] == success["difference_high"] == 0.25, "paired by update"
    assert success["old_low"] < 0.25 and success["old_high"] > 0.75, "three updates say little"
    assert rows["success, held-out levels"]["new_low"] == 0.5
    assert run("compare", old, new, "--format", "csv").startswith("measure,old,old_low")


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    one = _run(tmp_path / "one", [0.5])
    with pytest.raises(TrainingError, match=r"plays env sokoban, .* plays svg"):
        compare_runs(one, _run(tmp_path / "other", [0.5], env="svg"))
    with pytest.raises(TrainingError, match="has made no update yet"):
        compare_runs(one, _run(tmp_path / "young", []))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(TrainingError, match="is not a run of pivot train rl"):
        compare_runs(one, tmp_path / "nothing")
