"""Two processes make the updates of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.training.lake import lines_of, save_grammatical, short, torch, weights_in
from pivot.training import loop

pytestmark = pytest.mark.train

SCRIPT = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from pivot.tests.training.lake import short
from pivot.training import loop
loop.train(loop.prepare(short(sys.argv[1], arm="oracle", updates=3, lr=1e-5)), Path(sys.argv[2]))
"""


def test_two_processes_give_the_parameters_of_one(tmp_path: Path) -> None:
    start = save_grammatical(tmp_path / "start")
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    environment = os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "train.py"), str(start), str(tmp_path / "two")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    config = short(start, arm="oracle", updates=3, lr=1e-5, micro_batch_tokens=400)
    loop.train(loop.prepare(config), tmp_path / "one")
    one, two = weights_in(tmp_path / "one" / "final"), weights_in(tmp_path / "two" / "final")
    assert max((one[name] - two[name]).abs().max().item() for name in one) < 1e-6
    moved = weights_in(start)
    assert max((one[name] - moved[name]).abs().max().item() for name in one) > 1e-5
    for mine, theirs in zip(lines_of(tmp_path / "one"), lines_of(tmp_path / "two"), strict=True):
        for name in ("success", "loss", "kl", "tokens", "opd_active", "optimizer_steps"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-6), name
    assert torch.isfinite(next(iter(one.values()))).all()
