"""Stage II by two processes: the updates of one process, the same files, resuming, and one error message."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pivot.tests.training import forks, together
from pivot.tests.training.lake import FAMILIES, bytes_of, lines_of, save_grammatical, short, torch, weights_in
from pivot.tests.training.ports import free_ports
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import make_rl_config

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("processes")]
FIGURES = ("success", "loss", "kl", "tokens", "opd_active", "optimizer_steps", "grad_norm")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the runs that :mod:`.together` makes with two processes."""
    folder = tmp_path_factory.mktemp("together")
    save_grammatical(folder / "start")
    save_grammatical(folder / "other", FAMILIES[1])
    output = forks.complete(folder, folder, together.main, [*map(str, free_ports(4))], ranks=2)
    assert [each.split()[0] for each in output] == ["0", "0"], output
    ends = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    assert ends[0].pop("killed") == 1, "the first process ends with its connection to the second"
    assert ends[1].pop("killed") < 0
    assert not any(end for each in ends for end in each.values()), (ends, output)
    return folder


@pytest.fixture(scope="module")
def alone(runs: Path) -> Path:
    """The run of one process that the others must equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(runs)  # the model's name is part of the seed
        loop.train(loop.prepare(short("start", **together.ALIKE)), Path("one"))
    return runs / "one"


def test_two_processes_give_the_parameters_of_one(runs: Path, alone: Path) -> None:
    one, two, start = (weights_in(folder) for folder in (alone / "final", runs / "two/final", runs / "start"))
    assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    assert max((one[key] - start[key]).abs().max().item() for key in one) > 1e-5
    for mine, theirs in zip(lines_of(alone), lines_of(runs / "two"), strict=True):
        for key in FIGURES:
            # A norm adds up all gradients in float32: processors differ by some 1e-6 of it, a token too few by 1e-2.
            share = 1e-5 if key == "grad_norm" else 0.0
            assert mine[key] == pytest.approx(theirs[key], rel=share, abs=1e-6), key
    assert torch.isfinite(next(iter(one.values()))).all()


def test_a_killed_run_of_two_resumes_as_if_it_had_not_been_killed(runs: Path) -> None:
    lines, whole = lines_of(runs / "undisturbed"), bytes_of(runs / "undisturbed")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[-1]["grad_norm"] > 0
    assert lines_of(runs / "killed") == lines
    left = bytes_of(runs / "killed")
    assert left.keys() == whole.keys()
    assert [file for file in whole if left[file] != whole[file]] == []


def test_one_process_resumes_from_a_checkpoint_of_two(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    config = json.loads((runs / "alone" / "run.json").read_text(encoding="utf-8"))["config"]
    assert [line["step"] for line in lines_of(runs / "alone")][-1] == 1
    loop.train(loop.prepare(make_rl_config(config)), runs / "alone", resume=True)
    one, two = (weights_in(runs / name / "final") for name in ("alone", "undisturbed"))
    assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    assert [line["step"] for line in lines_of(runs / "alone")] == [0, 1, 2]
    assert bytes_of(runs / "alone").keys() <= bytes_of(runs / "undisturbed").keys()


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
    (folder := tmp_path / "work").mkdir()
    (folder / "thesis.txt").touch()
    data = ("train", "sft", small_store, "--model", small_model, "--recipe", "tiny", "--micro-batch", "4")
    shown, silent = forks.complete(folder, tmp_path, together.pivot, *data, *words, ranks=2)
    assert [shown.split()[0], silent.split()[0]] == ["2", "2"], (shown, silent)
    assert message in shown and "error" not in silent
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_processes_of_torchrun_wait_for_one_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0, for example, waits for its server."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    (tmp_path / "patient.py").write_text(PATIENT, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", tmp_path / "patient.py"]
    done = subprocess.run([sys.executable, "-P", *launch], capture_output=True, text=True, check=False)
    assert done.stdout.count("{0: 'here', 1: 'here'}") == 2, done.stderr
