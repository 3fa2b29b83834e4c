"""A run of Stage II whose process is killed anywhere and resumed leaves the bytes of an undisturbed one."""

import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.training.lake import bytes_of, lines_of, save_grammatical
from pivot.tests.training.rl_victim import MOMENTS, QUICK

pytestmark = pytest.mark.train


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(tuple(name for name in MOMENTS if name not in QUICK), id="rest", marks=pytest.mark.long),
    ],
)
def test_a_killed_run_goes_on_as_if_it_had_not_been(moments: tuple[str, ...], tmp_path: Path) -> None:
    start = save_grammatical(tmp_path / "start")
    runs = tmp_path / "runs"
    runs.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pivot.tests.training.rl_victim", start, runs, *moments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines, whole = lines_of(runs / "whole"), bytes_of(runs / "whole")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert any(name.startswith("rollouts/steps/") for name in whole)
    assert lines[-1]["grad_norm"] > 0
    for name in moments:
        assert lines_of(runs / name) == lines, name
        left = bytes_of(runs / name)
        assert left.keys() == whole.keys(), name
        assert [file for file in whole if left[file] != whole[file]] == [], name
