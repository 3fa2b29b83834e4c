"""Estimates of disk space against stores that were built."""

from pathlib import Path

import pivot
import pytest
from pivot.datasets.config import RunConfig
from pivot.datasets.run import Run
from pivot.flows.estimate import estimate_bytes
from pivot.tests.flow_runs import config_of


@pytest.mark.parametrize(("most", "horizon"), [(1, 9), (3, 5)])
def test_the_estimate_counts_the_frames_inside_turns(tmp_path: Path, most: int, horizon: int) -> None:
    """Without the frames between the actions of a turn, the estimate of turns of three is 0.7 of the truth."""
    settings = {"actions_per_turn": most, "horizon": horizon}
    config = config_of(environments={"sokoban": {"tasks": 12, "settings": settings}}, rollouts=8, tasks_per_shard=16)
    pivot.build(config, tmp_path / "store")
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.suffix != ".duckdb"]
    needed = sum(path.stat().st_size for path in files)
    assert 0.85 < estimate_bytes(Run(RunConfig.model_validate(config)), "sokoban") / needed < 1.35
