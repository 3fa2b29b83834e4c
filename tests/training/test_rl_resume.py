"""A run of Stage II whose process is killed anywhere and resumed leaves the bytes of an undisturbed one."""

from pathlib import Path

import pytest
from pivot.tests.training.lake import save_grammatical
from pivot.tests.training.rl_victim import MOMENTS, QUICK, assert_resumed_alike

pytestmark = pytest.mark.train


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(tuple(name for name in MOMENTS if name not in QUICK), id="rest", marks=pytest.mark.long),
    ],
)
def test_a_killed_run_goes_on_as_if_it_had_not_been(moments: tuple[str, ...], tmp_path: Path) -> None:
    lines, files = assert_resumed_alike(save_grammatical(tmp_path / "start"), tmp_path / "runs", moments)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert any(name.startswith("rollouts/steps/") for name in files)
    assert lines[-1]["grad_norm"] > 0
