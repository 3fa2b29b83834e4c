"""The scripts of ``examples/`` run from top to bottom."""

import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.flow_runs import clean_environment

pytest.importorskip("trl")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False, env=clean_environment()
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "losses [" in done.stdout
