"""The loss and its gradient against a reference in float64, however a batch is spread over steps and processes."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")

from pivot.tests.training import forks  # noqa: E402 - after the skips
from pivot.tests.training.forks import one_update, save_update  # noqa: E402
from pivot.tests.training.small import config_of, losses, uneven  # noqa: E402
from pivot.training.analyzer_sft.trainer import encode_samples, load_model, make_plan, make_trainer, record_loss  # noqa: E402
from pivot.training.encode import IGNORED, Encoder  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.xdist_group("processes")]


@pytest.fixture(scope="module")
def reference(small_store: Path, small_model: Path) -> dict[str, Any]:
    """Loss and gradient from the model's plain logits, record by record, in float64."""
    dataset = small_store / "dataset"
    model, processor = load_model(config_of(dataset, small_model))
    model.double()
    encoder = Encoder(processor)
    terms, counts = [], []
    for sample in uneven(dataset).train:
        batch = encode_samples(encoder, [sample])
        labels = batch.pop("labels")[0, 1:]
        batch["pixel_values"] = batch["pixel_values"].double()
        chances = model(**batch).logits[0, :-1].log_softmax(dim=-1)
        supervised = labels != IGNORED
        terms.append(-chances[supervised].gather(1, labels[supervised][:, None]).sum())
        counts.append(int(supervised.sum()))
    assert max(counts) >= 10 * min(counts)
    loss = torch.as_tensor(sum(term / count for term, count in zip(terms, counts, strict=True)) / len(terms))
    loss.backward()
    return {"loss": loss.item(), "gradient": {name: each.grad for name, each in model.named_parameters()}}


def _distance(made: dict[str, Any], expected: dict[str, Any]) -> tuple[float, float]:
    """Difference of the losses, and of the gradients relative to the reference's length."""
    assert made["gradient"].keys() == {name for name, each in expected["gradient"].items() if each is not None}
    both = (made["gradient"], expected["gradient"])
    mine, theirs = (torch.cat([each[name].double().flatten() for name in made["gradient"]]) for each in both)
    return abs(made["loss"] - expected["loss"]), float((mine - theirs).norm() / theirs.norm())


@pytest.mark.parametrize(("micro_batch", "precision"), [(4, "float64"), (2, "float32"), (1, "float64")])
def test_an_update_is_the_mean_over_its_records(
    micro_batch: int, precision: str, reference: dict[str, Any], small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    made = one_update(small_store / "dataset", small_model, tmp_path, micro_batch, 1, getattr(torch, precision))
    assert all(each < 1e-6 for each in _distance(made, reference))


def test_two_processes_make_the_same_update(
    reference: dict[str, Any], small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    """Catch a loss that is averaged per process instead of over all records."""
    words = (small_store / "dataset", small_model, tmp_path)
    ends = forks.complete(tmp_path, tmp_path, save_update, *words, ranks=2)
    assert [each.split()[0] for each in ends] == ["0", "0"], ends
    assert all(each < 1e-6 for each in _distance(torch.load(tmp_path / "made.pt"), reference))


def test_the_validation_loss_is_that_of_the_records_left_out(
    reference: dict[str, Any], small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    """Catch a validation loss of records that the model trains on."""
    config = config_of(small_store / "dataset", small_model, evaluate=True)
    data, (model, processor) = uneven(small_store / "dataset"), load_model(config)
    data = replace(data, train=data.validation, validation=data.train)
    trainer = make_trainer(config, make_plan(config, 4, 1), data, model, Encoder(processor), tmp_path)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(reference["loss"], abs=1e-5)


def test_a_long_target_weighs_as_much_as_a_short_one() -> None:
    logprobs = torch.tensor([[-1.0, -1.0, -1.0, -1.0], [-3.0, 0.0, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True, True, True], [True, False, False, False]])
    loss = record_loss(logprobs, mask)
    assert float(loss) == 2.0
    loss.backward()
    assert torch.equal(logprobs.grad, torch.tensor([[-0.125] * 4, [-0.5, 0, 0, 0]]))


@pytest.mark.long
def test_two_processes_make_the_run_of_one(small_store: Path, small_model: Path, tmp_path: Path) -> None:
    command = ["-m", "pivot", "train", "sft", small_store, "--model", small_model, "--recipe", "tiny"]
    command += ["--env", "frozenlake", "--batch", "4", "--micro-batch", "2", "--epochs", "2", "--save-every", "2"]
    environment = os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    launchers = {"one": [], "two": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]}
    for name, launcher in launchers.items():
        words = [sys.executable, "-P", *launcher, *command, "--out", tmp_path / name]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert one.keys() == two.keys() == set(range(1, 7))
    assert all(abs(one[step] - two[step]) < 1e-4 for step in one)
