"""Two processes that train together end together, with one message."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.training.ports import free_ports

pytestmark = pytest.mark.train

TOGETHER = {"MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
PATIENT = """
from pivot.models.extras import need
from pivot.training.ranks import PATIENCE, Ranks

ranks, torch = Ranks.current(), need("torch", "train")
assert torch.distributed.group.WORLD._get_backend(torch.device("cpu")).options._timeout == PATIENCE
print(ranks.join({ranks.rank: "here"}))
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--max-length", "16", "--check-only"), "expected at most 16"), (("--out", "."), "expected an empty folder")],
)
def test_all_processes_end_with_one_verdict_that_the_first_shows(
    words: tuple[str, ...], message: str, small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").touch()
    data = ["train", "sft", small_store, "--model", small_model, "--recipe", "tiny", "--micro-batch", "4"]
    together = os.environ | TOGETHER | {"WORLD_SIZE": "2", "MASTER_PORT": str(free_ports(1)[0])}
    started = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "pivot", *map(str, data), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=together | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]
    try:
        (_, shown), (_, silent) = (process.communicate(timeout=300) for process in started)
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [2, 2], (shown, silent)
    assert message in shown and "error" not in silent
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_processes_wait_for_one_that_is_slow() -> None:
    """Such as the first, which waits for its server."""
    launched = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_PORT": str(free_ports(1)[0])}
    outputs = subprocess.run(
        [sys.executable, "-c", PATIENT],
        env=os.environ | TOGETHER | launched,
        capture_output=True,
        text=True,
        check=True,
    )
    assert outputs.stdout.strip().endswith("{0: 'here'}")
