"""Weights whole in every process, or a share in each: the same updates, the same files, half the memory."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pivot.errors import TrainingError
from pivot.tests.training import together
from pivot.tests.training.lake import FAMILIES, bytes_of, lines_of, save_grammatical, short, torch, weights_in
from pivot.tests.training.ports import free_ports
from pivot.training.policy_rl import learner as update
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.config import make_rl_config
from pivot.training.policy_rl.sharding import ShardedModel
from pivot.training.ranks import Ranks

pytestmark = pytest.mark.train
PATIENCE = 500.0
"""Seconds for all runs together; a process that does not go along lets the other wait."""
FIGURES = ("success", "loss", "kl", "tokens", "opd_active", "optimizer_steps", "grad_norm")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the runs that :mod:`.together` makes with two processes."""
    folder = tmp_path_factory.mktemp("together")
    save_grammatical(folder / "start")
    save_grammatical(folder / "other", FAMILIES[1])
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    log = folder / "output.txt"
    with log.open("wb") as printed:
        process = subprocess.Popen(
            [sys.executable, "-P", *launch, together.__name__, *map(str, free_ports(5))],
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"},
            cwd=folder,
        )
        try:
            status = process.wait(PATIENCE)
        finally:
            process.terminate()  # torchrun then ends what it started
            process.wait()
    output = log.read_text(encoding="utf-8")[-3000:]
    assert status == 0, output
    ends = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    assert ends[0].pop("killed") == 1, "the first process ends with its connection to the second"
    assert ends[1].pop("killed") < 0
    assert not any(end for each in ends for end in each.values()), (ends, output)
    return folder


@pytest.fixture(scope="module")
def alone(runs: Path) -> Path:
    """The run of one process that they are to equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(runs)  # what the model is called is part of what is drawn
        patch.setattr(update, "COSINE_EVERY", together.COSINE_EVERY)
        patch.setattr(loop, "draw_curves", lambda *_: None)
        loop.train(loop.prepare(short("start", **together.ALIKE)), Path("one"))
    return runs / "one"


def _notes(runs: Path, name: str, what: str) -> list[list[Any]]:
    """Return the notes of each process about a run."""
    notes = [json.loads((runs / f"{name}.{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]
    return [[note[what] for note in each if what in note] for each in notes]


@pytest.mark.parametrize("name", ["two", "sharded"])
def test_two_processes_give_the_parameters_of_one(name: str, runs: Path, alone: Path) -> None:
    one, two, start = (weights_in(folder) for folder in (alone / "final", runs / name / "final", runs / "start"))
    assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    assert max((one[key] - start[key]).abs().max().item() for key in one) > 1e-5
    for mine, theirs in zip(lines_of(alone), lines_of(runs / name), strict=True):
        for key in FIGURES:
            # A norm adds up all gradients in float32: processors differ by some 1e-6 of it, a token too few by 1e-2.
            share = 1e-5 if key == "grad_norm" else 0.0
            assert mine[key] == pytest.approx(theirs[key], rel=share, abs=1e-6), key
    angles = [lines_of(folder)[-1]["gradient_cosine"] for folder in (alone, runs / name)]
    assert angles[0] == pytest.approx(angles[1], abs=1e-4)
    assert 0 < abs(angles[0]) < 1
    assert torch.isfinite(next(iter(one.values()))).all()


def test_processes_with_fewer_micro_batches_or_tokens_go_along(runs: Path) -> None:
    batches, mine, tokens = (_notes(runs, "sharded", what) for what in ("batches", "mine", "tokens"))
    assert batches[0] == batches[1]
    assert 3 in batches[0], "an odd number: one process fills up"
    assert mine[0] == mine[1] == [-(-count // 2) for count in batches[0]]
    assert any(first != second for first, second in zip(*tokens, strict=True))
    whole = _notes(runs, "two", "mine")
    assert whole[0] != whole[1], "where weights are whole, nobody waits for another within a minibatch"


def test_each_of_two_processes_holds_half(runs: Path) -> None:
    (whole,), (first,), (second,) = (
        set(each) for each in (_notes(runs, "two", "bytes")[0], *_notes(runs, "sharded", "bytes"))
    )
    numbers = sum(each.numel() for each in weights_in(runs / "start").values())
    assert whole == pytest.approx(20 * numbers, rel=0.02), "weights, reference, gradients, two moments"
    assert first == pytest.approx(whole / 2, rel=0.02)
    assert second == pytest.approx(whole / 2, rel=0.02)


def test_a_killed_sharded_run_goes_on_as_if_it_had_not_been(runs: Path) -> None:
    lines, whole = lines_of(runs / "undisturbed"), bytes_of(runs / "undisturbed")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert lines[-1]["grad_norm"] > 0
    assert lines_of(runs / "killed") == lines
    left = bytes_of(runs / "killed")
    assert left.keys() == whole.keys()
    assert [file for file in whole if left[file] != whole[file]] == []


def test_a_sharded_checkpoint_is_gone_on_with_by_one_process(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    config = json.loads((runs / "alone" / "run.json").read_text(encoding="utf-8"))["config"]
    assert config["shard"]
    assert [line["step"] for line in lines_of(runs / "alone")][-1] == 1
    loop.train(loop.prepare(make_rl_config(config | {"shard": False})), runs / "alone", resume=True)
    one, two = (weights_in(runs / name / "final") for name in ("alone", "undisturbed"))
    assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    assert [line["step"] for line in lines_of(runs / "alone")] == [0, 1, 2]
    assert bytes_of(runs / "alone").keys() <= bytes_of(runs / "undisturbed").keys()


def test_one_process_has_nobody_to_share_with(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"--shard: found one process, expected several.*torchrun"):
        loop.prepare(short(tmp_path, shard=True))


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize(("family", "arm", "again"), [(FAMILIES[0], "mp", True), (FAMILIES[1], "vanilla_grpo", False)])
def test_cut_up_models_learn_and_are_saved_like_whole_ones(
    family: str, arm: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = save_grammatical(tmp_path / "start", family)
    monkeypatch.setattr(loop, "check_processes", lambda *_, **__: None)
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(loop, "measure", _better_and_better(loop.measure))
    fields = {"arm": arm, "prompts": 2, "lr": 1e-5, "micro_batch_tokens": 200, "gradient_checkpointing": again}
    for name, shard in (("whole", False), ("cut", True)):
        config = short(start, shard=shard, validation_episodes=2, validate_every=1, **fields)
        loop.train(loop.prepare(config), tmp_path / name)
    for folder in ("final", "best", "checkpoints/checkpoint-2"):
        one, two = (weights_in(tmp_path / name / folder) for name in ("whole", "cut"))
        assert one.keys() == two.keys()
        assert max((one[key] - two[key]).abs().max().item() for key in one) < 1e-6
    saved = [torch.load(tmp_path / name / "checkpoints/checkpoint-2/optimizer.pt") for name in ("whole", "cut")]
    assert saved[0]["param_groups"] == saved[1]["param_groups"]
    for one, two in zip(saved[0]["state"].values(), saved[1]["state"].values(), strict=True):
        assert {name: (type(value), value.shape) for name, value in one.items()} == {
            name: (type(value), value.shape) for name, value in two.items()
        }
    assert bytes_of(tmp_path / "whole").keys() == bytes_of(tmp_path / "cut").keys()


def _better_and_better(measure: Any) -> Any:
    """Measure, and say that every validation went better than the one before."""
    calls = 0

    def measured(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        played, records = measure(*arguments)
        return replace(played, success=replace(played.success, value=calls)), records

    return measured


@pytest.mark.usefixtures("group_of_one")
def test_a_cut_up_model_is_whole_while_somebody_reads_it() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 3))
    model[1].weight.requires_grad_(False)
    before = [each.detach().clone() for each in model.parameters()]
    sharded = ShardedModel(model, Ranks())
    assert [each.numel() for each in model.parameters()] == [0] * 4
    with sharded.whole(), sharded.whole():
        pass
    assert [each.numel() for each in model.parameters()] == [0] * 4
    with sharded.whole():
        with sharded.whole():
            pass
        assert all(map(torch.equal, model.parameters(), before))
    assert len(sharded.trained()) == 3
    assert sharded.forward(lambda twin: twin(torch.ones(1, 3))).requires_grad
