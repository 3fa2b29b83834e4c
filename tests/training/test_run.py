"""Runs of Stage I: from the command line to a checkpoint that other libraries load, and what stops them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
transformers = pytest.importorskip("transformers")
safetensors: Any = pytest.importorskip("safetensors")
pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")

import pivot  # noqa: E402 - after the skips
from pivot.core.errors import TrainingError  # noqa: E402
from pivot.core.images import decode, frame_id  # noqa: E402
from pivot.core.messages import EncodedFrame  # noqa: E402
from pivot.core.storage import LocalStorage  # noqa: E402
from pivot.models.base import ChatAnswer, ChatRequest, Sampling  # noqa: E402
from pivot.models.transformers.model import Engine  # noqa: E402
from pivot.models.transformers.processors import load_processor  # noqa: E402
from pivot.tests.cli.command_line import run  # noqa: E402
from pivot.tests.models.from_scratch import make_vlm  # noqa: E402
from pivot.tests.stores import build_small  # noqa: E402
from pivot.tests.training.lake import short  # noqa: E402
from pivot.tests.training.small import config_of, held, losses  # noqa: E402
from pivot.training.analyzer_sft import trainer  # noqa: E402
from pivot.training.analyzer_sft.config import make_sft_config  # noqa: E402
from pivot.training.analyzer_sft.run import prepare, train  # noqa: E402
from pivot.training.analyzer_sft.samples import Sample, epoch_order  # noqa: E402
from pivot.training.analyzer_sft.trainer import encode_samples, make_trainer  # noqa: E402
from pivot.training.checkpoint import FINAL, Checkpoint, last_checkpoint  # noqa: E402
from pivot.training.config import recipe_fields, recipes  # noqa: E402
from pivot.training.curves import draw_losses  # noqa: E402
from pivot.training.encode import IGNORED, Encoder  # noqa: E402
from pivot.training.memory import estimate  # noqa: E402
from pivot.training.policy_rl import learner  # noqa: E402

pytestmark = pytest.mark.train


def _request(sample: Sample) -> ChatRequest:
    pixels = decode(sample.image)
    frame = EncodedFrame(frame_id(pixels), pixels.shape[1], pixels.shape[0], "png", sample.image)
    messages = [
        {
            "role": message["role"],
            "content": [
                {"type": "image", "frame_id": frame.frame_id} if part["type"] == "image" else part
                for part in message["content"]
            ],
        }
        for message in sample.prompt
    ]
    sampling = Sampling(temperature=0, max_tokens=80)
    return ChatRequest("r", "e", None, "teacher", messages, {frame.frame_id: frame}, "h", sampling, 0)


def test_the_command_trains_a_checkpoint_that_answers(
    small_store: Path, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a run that leaves no file for people, or a checkpoint that no engine loads."""
    monkeypatch.setattr("pivot.training.analyzer_sft.run.draw_losses", draw_losses)
    out = tmp_path / "run"
    command = ["train", "sft", small_store, "--model", small_model, "--out", out, "--env", "sokoban"]
    command += ["--recipe", "tiny", "--epochs", "2", "--lr", "0.003", "--warmup", "0.5"]
    shown = run(*command)
    assert "4 updates" in shown and f"the Analyzer is in {out}/final" in shown
    written = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert written == {"checkpoints", "final", "run.json", "metrics.jsonl", "loss.png"}
    series = losses(out)
    assert len(series) == 4 and series[4] < series[1]
    rates = [json.loads(line).get("lr") for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [each for each in rates if each is not None] == [0, 0.0015, 0.003, 0.0015], "half of both epochs, upwards"
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert record["config"]["epochs"] == 2 and record["records"]["train"] == 16 and len(record["dataset_digest"]) == 64
    card = (out / FINAL / "README.md").read_text(encoding="utf-8")
    assert record["dataset_digest"] in card and "16 of sokoban" in card and "loss on held-out levels" in card
    assert "lora_rank" not in card, "a full run has no adapters"
    assert record["dataset_address"] == str(small_store.absolute())
    assert "already complete" in run(*command, "--resume")

    before, after = (json.loads((folder / "config.json").read_text()) for folder in (small_model, out / FINAL))
    assert {name: before[name] for name in before if name not in ("dtype", "text_config", "vision_config")} == {
        name: after[name] for name in before if name not in ("dtype", "text_config", "vision_config")
    }
    assert after["use_cache"] is True

    # The folder is loaded as any other model, and asked with the prompt of its training.
    engine = Engine.load(str(out / FINAL), None, "float32", "cpu")
    sample = held(small_store, "sokoban")[0]
    (answer,) = engine.answer([_request(sample)])
    assert isinstance(answer, ChatAnswer) and answer.token_ids
    encoder = Encoder(engine.processor)
    taught = encode_samples(encoder, [sample])["input_ids"][0].tolist()
    assert answer.call["prompt_tokens"] == len(taught) - len(encoder.reply_tokens(sample.target))


def test_adapters_go_on_the_language_model_alone_and_are_merged_in_float32(
    small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    config = config_of(
        small_store / "dataset", small_model, lora=True, lora_rank=4, lr=1e-5, epochs=1, precision="bf16"
    )
    prepared = prepare(config)
    made = make_trainer(config, prepared.plan, prepared.data, prepared.model, prepared.encoder, tmp_path / "other")
    trained = {name for name, each in made.model.named_parameters() if each.requires_grad}
    assert trained and all("language_model" in name and "lora" in name for name in trained)
    train(prepare(config), tmp_path / "run")
    before, after = (
        transformers.AutoModelForImageTextToText.from_pretrained(folder).state_dict()
        for folder in (small_model, tmp_path / "run" / FINAL)
    )
    assert {each.dtype for each in after.values()} == {torch.float32}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("language_model" in name and "_proj" in name for name in changed)
    for name in changed:  # rounded to bfloat16, most weights would stay as they were
        assert (before[name] != after[name]).float().mean() > 0.9


def test_a_run_with_adapters_goes_on_where_it_was(small_store: Path, small_model: Path, tmp_path: Path) -> None:
    config = config_of(small_store / "dataset", small_model, lora=True, lora_rank=4, lr=1e-2, save_every=2)
    train(prepare(config), tmp_path / "whole")
    train(prepare(config), tmp_path / "cut")
    # As if killed right after update 4.
    cut = LocalStorage(tmp_path / "cut")
    for name in ("final", "checkpoints/checkpoint-6", "checkpoints/6.json"):
        cut.delete(name)
    train(prepare(config), tmp_path / "cut", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def test_qwen3_vl_trains_too(small_store: Path, small_model: Path, tmp_path: Path) -> None:
    tokenizer = load_processor(str(small_model), "qwen2_5_vl").tokenizer
    for part in make_vlm(tokenizer, family="qwen3_vl", patch=16):
        part.save_pretrained(tmp_path / "qwen3")
    train(prepare(config_of(small_store / "dataset", tmp_path / "qwen3", epochs=1, lr=3e-3)), tmp_path / "run")
    series = losses(tmp_path / "run")
    assert series[3] < series[1]
    assert transformers.AutoConfig.from_pretrained(tmp_path / "run" / FINAL).model_type == "qwen3_vl"


class Listener(transformers.TrainerCallback):
    """Counts updates, and stops after the second."""

    updates = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the update, and stop after the second."""
        self.updates += 1
        control.should_training_stop = state.global_step == 2


def test_users_callbacks_are_called_and_progress_is_that_of_stock_trainers(
    small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    config = config_of(small_store / "dataset", small_model, out=tmp_path / "run", micro_batch=2, save_every=1)
    listener, messages = Listener(), list[str]()
    pivot.train_sft(config, report=messages.append, callbacks=[listener])
    assert listener.updates == 2 and list(losses(tmp_path / "run")) == [1, 2]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(line["tokens_per_second"] > 0 for line in lines)
    assert re.search(r"update 1 of 6: loss \S+ lr \S+ token accuracy 0\.\d+; \d+ tokens/s, [\d:]{7} left", messages[0])
    prepared = prepare(config)
    order = epoch_order(prepared.report.train.records, 4, config.seed, 0)[:4]
    samples: Any = prepared.data.train
    batch = encode_samples(prepared.encoder, [samples[index] for index in order])
    labels = batch.pop("labels")[:, 1:]
    with torch.no_grad():
        likely = prepared.model.eval()(**batch).logits[:, :-1].argmax(-1)
    counted = labels != IGNORED
    assert lines[0]["token_accuracy"] == pytest.approx((likely == labels)[counted].float().mean().item(), abs=0.02)


def test_a_run_that_was_killed_before_its_end_makes_no_further_update(
    small_store: Path, small_model: Path, tmp_path: Path
) -> None:
    config = config_of(small_store / "dataset", small_model, epochs=1, save_every=3)
    train(prepare(config), tmp_path / "run")
    whole = (tmp_path / "run" / FINAL / "model.safetensors").read_bytes()
    LocalStorage(tmp_path / "run").delete(FINAL)
    train(prepare(config), tmp_path / "run", resume=True)
    assert list(losses(tmp_path / "run")) == [1, 2, 3]
    assert (tmp_path / "run" / FINAL / "model.safetensors").read_bytes() == whole


def test_the_estimate_counts_weights_exactly(small_store: Path, small_model: Path) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(small_model)
    count = sum(each.numel() for each in model.parameters())
    full = estimate(config_of(small_store, small_model))
    assert (full.parameters, full.trained) == (count, count)
    assert full.parts["optimizer"] == 2 * full.parts["gradients"] == 2 * full.parts["weights"] == 8 * count
    adapted = estimate(config_of(small_store, small_model, lora=True, lora_rank=4))
    assert 0 < adapted.trained < count / 4
    assert adapted.total < full.total


@pytest.mark.parametrize("name", recipes())
def test_recipes_are_settings_and_can_be_estimated(name: str, small_model: Path) -> None:
    fields: dict[str, Any] = {"dataset": "runs/first", "model": str(small_model)} | recipe_fields(name)
    made = estimate(make_sft_config(fields))
    paper = {"qwen2.5-vl-3b": 3.755e9, "qwen3-vl-2b": 2.128e9}
    if name in paper:
        assert made.parameters == pytest.approx(paper[name], rel=1e-3)
        assert (fields["lr"], fields["batch"], fields["epochs"], fields["max_length"]) == (2e-6, 8, 3, 8192)
    shown = run("train", "sft", "runs/first", "--model", fields["model"], "--recipe", name, "--dry-run")
    assert "nothing was written" in shown and "optimizer" in shown


def test_a_log_of_bare_actions_trains_like_a_full_one(small_model: Path, tmp_path: Path) -> None:
    root = build_small(tmp_path / "store", log="actions")
    prepared = prepare(config_of(root, small_model, epochs=1))
    assert "action=" in prepared.report.example.prompt
    assert "moved=" not in prepared.report.example.prompt.split("log:")[1]
    train(prepared, tmp_path / "run")
    assert len(losses(tmp_path / "run")) == prepared.plan.steps > 0


def test_a_missing_tracker_is_refused_before_the_data_is_read(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"tracker 'no_such_tracker' is not installed.*remove --report-to"):
        prepare(config_of(tmp_path / "no data", tmp_path, report_to=("no_such_tracker",)))


# Stops


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
    real, calls = trainer.record_loss, []

    def planted(logprobs: Any, mask: Any) -> Any:
        calls.append(1)
        loss = real(logprobs, mask)
        if len(calls) != BAD_STEP:
            return loss
        return loss * float("nan") if what == "loss" else _InfiniteGradient.apply(loss)

    monkeypatch.setattr(trainer, "record_loss", planted)
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

    monkeypatch.setattr(trainer, "record_loss", full)
    monkeypatch.setattr(learner, "stage_two_loss", full)
    one = config_of(small_store / "dataset", small_model, out=tmp_path / "one", gradient_checkpointing=True)
    two = short(player, out=tmp_path / "two", lora=True, lora_rank=4, keep_rollouts=0)
    begins = r"memory of the GPU is too small: found CUDA out of memory\. Tried to allocate 2\.00 GiB\. .*"
    with pytest.raises(TrainingError, match=begins + r"--micro-batch \(now 4\).*, or .* --lora$"):
        pivot.train_sft(one)
    with pytest.raises(TrainingError, match=begins + r"--micro-batch-tokens \(now \d+\).* --gradient-checkpointing$"):
        pivot.train_rl(two)
