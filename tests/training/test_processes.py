"""Two processes make the updates of one; what one of them does for both ends both."""

import os
import socket
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


CHECKS = """
import sys
from pivot.training import sft
real, word = sft.check_data, sys.argv[1]
def check(*arguments):
    print("CHECKED")
    if word == "broken":
        raise KeyError("planted")
    return real(*arguments)
sft.check_data = check
sys.argv[:2] = ["pivot"]
from pivot.cli import main
main()
"""


def side_by_side(arguments: list[str], folder: Path) -> list[tuple[int, str, str]]:
    """Run the command in two processes that train together; return exit status, output and errors of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", CHECKS, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | together | {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"},
        )
        for rank in "01"
    ]
    try:
        shown = [process.communicate(timeout=500) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, *each) for process, each in zip(started, shown, strict=True)]


@pytest.mark.parametrize(
    ("word", "more", "statuses", "told"),
    [
        ("whole", ["--check-only"], [0, 0], "loading the model"),
        ("whole", ["--max-length", "16", "--check-only"], [2, 2], "expected at most 16"),
        ("whole", ["--out", "taken"], [2, 2], "expected an empty folder"),
        ("broken", ["--check-only"], [1, 2], "KeyError: 'planted'"),
    ],
    ids=["right", "wrong", "taken", "broken"],
)
def test_one_process_checks_the_data_and_all_end_with_its_verdict(
    word: str, more: list[str], statuses: list[int], told: str, small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").touch()
    command = [
        "train",
        "sft",
        str(small_store),
        "--model",
        str(small_model),
        "--recipe",
        "tiny",
        "--micro-batch",
        "4",
        *more,
    ]
    first, second = side_by_side([word, *command], tmp_path)
    assert [first[0], second[0]] == statuses, (first, second)
    assert "CHECKED" in first[1] and "CHECKED" not in second[1]
    assert told in first[2]
    assert "error" not in second[2], "one process tells"
