"""A loss or gradient that is not finite stops the run within that update."""

import re
from pathlib import Path
from typing import Any

import pivot
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")

from pivot.core.errors import TrainingError  # noqa: E402 - after the skips
from pivot.core.storage import LocalStorage  # noqa: E402
from pivot.tests.training.lake import short  # noqa: E402
from pivot.tests.training.small import config_of, held, losses  # noqa: E402
from pivot.training.analyzer_sft import trainer as training  # noqa: E402
from pivot.training.analyzer_sft.run import prepare, train  # noqa: E402
from pivot.training.analyzer_sft.samples import epoch_order  # noqa: E402
from pivot.training.checkpoint import Checkpoint, last_checkpoint  # noqa: E402
from pivot.training.policy_rl import learner  # noqa: E402

pytestmark = pytest.mark.train

BAD_STEP = 3


class _InfiniteGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, value: Any) -> Any:
        return value.clone()

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0] * float("inf")


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_run_stops_in_the_update_that_goes_wrong(
    what: str, small_store: Path, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = training.record_loss, []

    def planted(logprobs: Any, mask: Any) -> Any:
        calls.append(1)
        loss = real(logprobs, mask)
        if len(calls) != BAD_STEP:
            return loss
        return loss * float("nan") if what == "loss" else _InfiniteGradient.apply(loss)

    monkeypatch.setattr(training, "record_loss", planted)
    prepared = prepare(config_of(small_store / "dataset", small_model, save_every=1))
    with pytest.raises(TrainingError) as raised:
        train(prepared, tmp_path / "run")
    assert len(calls) == BAD_STEP
    samples = held(small_store / "dataset", "frozenlake")
    order = epoch_order(len(samples), 4, 0, 0)[(BAD_STEP - 1) * 4 : BAD_STEP * 4]
    records = ", ".join(samples[place].episode_id for place in order)
    assert re.match(
        rf"the {what} became (nan|inf) in update {BAD_STEP} \(records: {records}\); expected", str(raised.value)
    )
    assert set(losses(tmp_path / "run")) == {1, 2}
    assert last_checkpoint(LocalStorage(tmp_path / "run")) == Checkpoint(2)
    assert not (tmp_path / "run" / "final").exists()


@pytest.mark.parametrize("staged", ["checkpoint-", ".final"])
def test_a_full_disk_is_reported_while_weights_are_written(
    staged: str, small_store: Path, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modeling_utils: Any = pytest.importorskip("transformers.modeling_utils")
    save = modeling_utils.safe_save_file

    def onto_a_full_disk(tensors: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if staged in str(file):
            raise pytest.importorskip("safetensors").SafetensorError("I/O error: No space left on device")
        save(tensors, file, *args, **kwargs)

    monkeypatch.setattr(modeling_utils, "safe_save_file", onto_a_full_disk)
    prepared = prepare(config_of(small_store / "dataset", small_model, epochs=1))
    with pytest.raises(TrainingError, match=r"cannot write .*No space left on device; free some space .*--resume"):
        train(prepared, tmp_path / "run")
    assert (last_checkpoint(LocalStorage(tmp_path / "run")) is None) is (staged == "checkpoint-")
    assert not (tmp_path / "run" / "final").exists()


def test_too_little_memory_names_the_settings_to_lower(
    small_store: Path, small_model: Path, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nDetails")

    monkeypatch.setattr(training, "record_loss", full)
    monkeypatch.setattr(learner, "stage_two_loss", full)
    one = config_of(small_store / "dataset", small_model, out=tmp_path / "one", gradient_checkpointing=True)
    two = short(player, out=tmp_path / "two", lora=True, lora_rank=4, keep_rollouts=0)
    begins = r"memory of the GPU is too small: found CUDA out of memory\. Tried to allocate 2\.00 GiB\. .*"
    with pytest.raises(TrainingError, match=begins + r"--micro-batch \(now 4\).*, or .* --lora$"):
        pivot.train_sft(one)
    with pytest.raises(TrainingError, match=begins + r"--micro-batch-tokens \(now \d+\).* --gradient-checkpointing$"):
        pivot.train_rl(two)
