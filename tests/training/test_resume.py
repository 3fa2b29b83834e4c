"""Runs that are killed anywhere and resumed leave the files of an undisturbed run; two processes work as one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")

from pivot.core.errors import TrainingError
from pivot.core.plugins import Settings
from pivot.core.storage import LocalStorage
from pivot.tests.training import forks
from pivot.tests.training.forks import RL_MOMENTS, SFT_MOMENTS
from pivot.tests.training.lake import FAMILIES, bytes_of, lines_of, save_grammatical, short, torch, weights_in
from pivot.tests.training.small import config_of, losses
from pivot.training.analyzer_sft.run import prepare, train
from pivot.training.checkpoint import (
    METRICS,
    RUN,
    Checkpoint,
    check_run,
    clear_torn,
    cut_metrics,
    last_checkpoint,
    read_metrics,
    seal,
)
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import make_rl_config

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("processes")]
QUICK = ("rollout", "step", "optimizer", "sealed")


def make_runs(stage: str, folder: Path, *words: str | Path) -> None:
    """Let a process make the runs of a stage, which kill themselves."""
    (end,) = forks.complete(folder, folder, forks.make_killed, stage, *words)
    assert end.startswith("0 "), end[-3000:]


@pytest.fixture(scope="module")
def runs(small_store: Path, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders of an undisturbed run of Stage I and of killed runs."""
    folder = tmp_path_factory.mktemp("runs")
    make_runs("sft", folder, small_store / "dataset", small_model, folder)
    return folder


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(tuple(name for name in RL_MOMENTS if name not in QUICK), id="rest", marks=pytest.mark.long),
    ],
)
def test_a_killed_run_of_stage_two_leaves_the_bytes_of_a_whole_one(moments: tuple[str, ...], tmp_path: Path) -> None:
    """Catch a state of Stage II that no checkpoint keeps, such as a moment of the optimizer or a draw."""
    make_runs("rl", tmp_path, save_grammatical(tmp_path / "start"), tmp_path, *moments)
    lines, whole = lines_of(tmp_path / "whole"), bytes_of(tmp_path / "whole")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert any(name.startswith("rollouts/steps/") for name in whole)
    assert lines[-1]["grad_norm"] > 0
    for name in moments:
        assert lines_of(tmp_path / name) == lines, name
        left = bytes_of(tmp_path / name)
        assert left.keys() == whole.keys(), name
        assert [file for file in whole if left[file] != whole[file]] == [], name


@pytest.mark.parametrize("moment", SFT_MOMENTS)
def test_the_losses_after_a_kill_are_those_of_an_undisturbed_run(moment: str, runs: Path) -> None:
    """Catch a record that is read twice or left out after a kill, or an optimizer that begins again."""
    whole, killed = losses(runs / "whole"), losses(runs / moment)
    assert len(whole) == 6
    assert killed == whole
    weights = "final/model.safetensors"
    assert (runs / moment / weights).read_bytes() == (runs / "whole" / weights).read_bytes()


def test_a_complete_run_is_left_as_it_is(runs: Path, small_store: Path, small_model: Path) -> None:
    config = config_of(small_store / "dataset", small_model, epochs=2, save_every=2)
    before = (runs / "whole" / "metrics.jsonl").read_bytes()
    assert train(prepare(config), runs / "whole", resume=True).already_complete
    assert (runs / "whole" / "metrics.jsonl").read_bytes() == before


def test_a_run_is_gone_on_with_under_its_own_settings_only(runs: Path, small_store: Path, small_model: Path) -> None:
    other = prepare(config_of(small_store / "dataset", small_model, epochs=2, save_every=2, lr=2e-3))
    with pytest.raises(TrainingError, match=r"was started with lr 0\.001, found 0\.002; set the same value"):
        train(other, runs / "whole", resume=True)
    with pytest.raises(TrainingError, match="expected an empty folder; resume that run with --resume"):
        train(other, runs / "whole")


def test_only_a_sealed_checkpoint_with_all_its_bytes_counts(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for step in (2, 4, 6, 8):
        storage.write_bytes(f"{Checkpoint(step).folder}/model.safetensors", b"weights")
        if step < 8:
            seal(storage, step)
    storage.write_bytes(f"{Checkpoint(6).folder}/model.safetensors", b"weigh")  # shorter than its seal says
    last = last_checkpoint(storage)
    assert last == Checkpoint(4)
    clear_torn(storage, last)
    assert {name.split("/")[1] for name in storage.listing("checkpoints")} == {
        *("checkpoint-2", "checkpoint-4", "2.json", "4.json")
    }


def test_a_repeated_run_keeps_no_line_and_no_other_model(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write_bytes(METRICS, b'{"step": 0}\n{"step": 1}\n')
    cut_metrics(storage, 0)
    assert read_metrics(storage) == []
    begun = {"config": {}, "dataset_digest": "d", "model_revision": "old"}
    storage.write_json(RUN, begun)
    check_run(storage, begun, Settings(), (), resume=True)
    for name in ("dataset_digest", "model_revision"):
        with pytest.raises(TrainingError, match=f"a different {name[:5].strip('_')}"):
            check_run(storage, begun | {name: "new"}, Settings(), (), resume=True)


# Two processes


FIGURES = ("success", "loss", "kl", "tokens", "opd_active", "optimizer_steps", "grad_norm")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the runs that :mod:`.forks` makes with two processes."""
    folder = tmp_path_factory.mktemp("together")
    save_grammatical(folder / "start")
    save_grammatical(folder / "other", FAMILIES[1])
    output = forks.complete(folder, folder, forks.make_shared, [*map(str, forks.free_ports(4))], ranks=2)
    assert [each.split()[0] for each in output] == ["0", "0"], output
    ends = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    assert ends[0].pop("killed") == 1, "the first process ends with its connection to the second"
    assert ends[1].pop("killed") < 0
    assert not any(end for each in ends for end in each.values()), (ends, output)
    return folder


@pytest.fixture(scope="module")
def alone(shared: Path) -> Path:
    """The run of one process that the others must equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shared)  # the model's name is part of the seed
        loop.train(loop.prepare(short("start", **forks.ALIKE)), Path("one"))
    return shared / "one"


def test_two_processes_give_the_parameters_of_one(shared: Path, alone: Path) -> None:
    """Catch a gradient that is averaged over processes of unequal shares, or a figure of one process alone."""
    one, two, start = (weights_in(folder) for folder in (alone / "final", shared / "two/final", shared / "start"))
    assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    assert max((one[key] - start[key]).abs().max().item() for key in one) > 1e-5
    for mine, theirs in zip(lines_of(alone), lines_of(shared / "two"), strict=True):
        for key in FIGURES:
            # A norm adds up all gradients in float32: processors differ by some 1e-6 of it, a token too few by 1e-2.
            share = 1e-5 if key == "grad_norm" else 0.0
            assert mine[key] == pytest.approx(theirs[key], rel=share, abs=1e-6), key
    assert torch.isfinite(next(iter(one.values()))).all()


def test_a_killed_run_of_two_resumes_as_if_it_had_not_been_killed(shared: Path) -> None:
    lines, whole = lines_of(shared / "undisturbed"), bytes_of(shared / "undisturbed")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[-1]["grad_norm"] > 0
    assert lines_of(shared / "killed") == lines
    left = bytes_of(shared / "killed")
    assert left.keys() == whole.keys()
    assert [file for file in whole if left[file] != whole[file]] == []


def test_one_process_resumes_from_a_checkpoint_of_two(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared)
    config = json.loads((shared / "alone" / "run.json").read_text(encoding="utf-8"))["config"]
    assert [line["step"] for line in lines_of(shared / "alone")][-1] == 1
    loop.train(loop.prepare(make_rl_config(config)), shared / "alone", resume=True)
    one, two = (weights_in(shared / name / "final") for name in ("alone", "undisturbed"))
    assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    assert [line["step"] for line in lines_of(shared / "alone")] == [0, 1, 2]
    assert bytes_of(shared / "alone").keys() <= bytes_of(shared / "undisturbed").keys()


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
    shown, silent = forks.complete(folder, tmp_path, forks.pivot, *data, *words, ranks=2)
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
