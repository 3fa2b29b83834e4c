"""Two processes that train together end together, with one message."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.training.ports import free_ports

pytestmark = pytest.mark.train

CHECKS = """
import json, os, sys, traceback
from pivot.cli import main
from pivot.training.analyzer_sft import run as sft, trainer

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
PATIENT = """
from pivot.models.extras import need
from pivot.training.ranks import PATIENCE, Ranks

ranks, torch = Ranks.current(), need("torch", "train")
assert torch.distributed.group.WORLD._get_backend(torch.device("cpu")).options._timeout == PATIENCE
print(ranks.join({ranks.rank: "here"}))
"""
End = tuple[int, str, str]
"""Exit status, output and errors of a process."""


@pytest.fixture(scope="module")
def ends(small_store: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[End]]:
    """Return status and output of each command of ``CASES``, run by two processes that train together."""
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
        outputs = [process.communicate(timeout=500) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], outputs
    statuses = [json.loads(output) for output, _ in outputs]

    def end(name: str, rank: int) -> End:
        output, errors = ((folder / f"{name}.{rank}.{kind}").read_text() for kind in ("out", "err"))
        return statuses[rank][name], output, errors

    return {name: [end(name, 0), end(name, 1)] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_one_process_checks_the_data_and_all_end_with_its_verdict(name: str, ends: dict[str, list[End]]) -> None:
    _, _, statuses, outputs = CASES[name]
    first, second = ends[name]
    assert [first[0], second[0]] == statuses, (first, second)
    assert "CHECKED" in first[1] and "CHECKED" not in second[1]
    assert outputs in first[2]
    assert "error" not in second[2], "one process tells"


def test_processes_wait_for_one_that_is_slow() -> None:
    """Such as the first, which waits for its servers."""
    launched = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    launched |= {"MASTER_PORT": str(free_ports(1)[0]), "ACCELERATE_USE_CPU": "1"}
    outputs = subprocess.run(
        [sys.executable, "-c", PATIENT], env=os.environ | launched, capture_output=True, text=True, check=True
    )
    assert outputs.stdout.strip().endswith("{0: 'here'}")
