"""Two processes make the updates of one; what one of them does for both ends both."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from pivot.tests.training.lake import lines_of, save_grammatical, short, torch, weights_in
from pivot.training import loop

pytestmark = pytest.mark.train

SCRIPT = """
import sys
from contextlib import ExitStack
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
import json, os, sys, traceback
from pivot.cli import main
from pivot.training import sft, trainer

real, rank = sft.check_data, os.environ["RANK"]


def case(name, word, port, arguments):
    def check(*given):
        print("CHECKED")
        if word == "broken":
            raise KeyError("planted")
        return real(*given)

    for number, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{name}.{rank}.{kind}", os.O_CREAT | os.O_WRONLY), number)
    os.environ["MASTER_PORT"] = port
    sft.check_data = check
    sys.argv = ["pivot", *arguments]
    main()


def ended(work):
    try:
        work()
    except SystemExit as end:
        return end.code
    except BaseException:
        traceback.print_exc()
        return 1


statuses = {}
for name, *given in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        status = ended(lambda: case(name, *given))
        sys.stdout.flush()
        os._exit(status)
    statuses[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(statuses))
"""
"""Each command in a fork, so that PyTorch is imported once a process."""
CASES = {
    "right": ("whole", ["--check-only"], [0, 0], "loading the model"),
    "wrong": ("whole", ["--max-length", "16", "--check-only"], [2, 2], "expected at most 16"),
    "taken": ("whole", ["--out", "taken"], [2, 2], "expected an empty folder"),
    "broken": ("broken", ["--check-only"], [1, 2], "KeyError: 'planted'"),
}
End = tuple[int, str, str]
"""Exit status, output and errors of a process."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as open_together:
        probes = [open_together.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


@pytest.fixture(scope="module")
def ends(small_store: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[End]]:
    """How each command of ``CASES`` ended in two processes that train together."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.txt").touch()
    command = ["train", "sft", small_store, "--model", small_model, "--recipe", "tiny", "--micro-batch", "4"]
    orders = [
        (name, word, str(port), [*map(str, command), *more])
        for port, (name, (word, more, *_)) in zip(free_ports(len(CASES)), CASES.items(), strict=True)
    ]
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", CHECKS, json.dumps(orders)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=os.environ | together | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]
    try:
        told = [process.communicate(timeout=500) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], told
    statuses = [json.loads(output) for output, _ in told]

    def end(name: str, rank: int) -> End:
        output, errors = ((folder / f"{name}.{rank}.{kind}").read_text() for kind in ("out", "err"))
        return statuses[rank][name], output, errors

    return {name: [end(name, 0), end(name, 1)] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_one_process_checks_the_data_and_all_end_with_its_verdict(name: str, ends: dict[str, list[End]]) -> None:
    _, _, statuses, told = CASES[name]
    first, second = ends[name]
    assert [first[0], second[0]] == statuses, (first, second)
    assert "CHECKED" in first[1] and "CHECKED" not in second[1]
    assert told in first[2]
    assert "error" not in second[2], "one process tells"
