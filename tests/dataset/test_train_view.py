"""TRL's stock SFTTrainer takes the dataset as it is: two steps on a tiny Qwen2.5-VL, pictures and targets included."""

from pathlib import Path
from typing import Any

import pytest
from pivot.models.transformers.processors import image_text_class
from pivot.tests.models.tiny_vlm import save_tiny_vlm

from datasets import load_dataset

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
trl = pytest.importorskip("trl")

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No hub, and a cache that goes away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        patch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
        yield


@pytest.fixture(scope="module")
def model_folder(small_store: Path, tmp_path_factory: pytest.TempPathFactory, offline: None) -> Path:
    """A saved model whose tokenizer has read the dataset."""
    folder = tmp_path_factory.mktemp("model")
    rows: Any = load_dataset(str(small_store / "dataset"), "all", split="train")
    texts = [
        part["text"] for name in ("prompt", "completion") for row in rows[name] for m in row for part in m["content"]
    ]
    save_tiny_vlm(folder, [text for text in texts if text])
    return folder


class Recorder:
    """Keeps what a model and its vision tower were given."""

    def __init__(self, model: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        self.pictures: list[Any] = []
        model.register_forward_pre_hook(lambda _, args, kwargs: self.batches.append(dict(kwargs)), with_kwargs=True)
        model.model.visual.register_forward_pre_hook(
            lambda _, args, kwargs: self.pictures.append((args or (kwargs["hidden_states"],))[0]), with_kwargs=True
        )


def _trainer(model_folder: Path, out: Path, train: Any, validation: Any = None) -> Any:
    processor = image_text_class("qwen2_5_vl").from_pretrained(model_folder)
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(model_folder)
    arguments = trl.SFTConfig(
        output_dir=str(out),
        max_steps=2,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        learning_rate=1e-3,
        max_length=None,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        seed=0,
    )
    return trl.SFTTrainer(
        model=model, args=arguments, train_dataset=train, eval_dataset=validation, processing_class=processor
    )


def _losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("config", ["sokoban", "frozenlake", "all"])
def test_two_steps_of_the_stock_trainer(config: str, small_store: Path, model_folder: Path, tmp_path: Path) -> None:
    loaded: Any = load_dataset(str(small_store / "dataset"), config)
    trainer = _trainer(model_folder, tmp_path, loaded["train"])
    recorder = Recorder(trainer.model)
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    losses = _losses(trainer)
    assert len(losses) == 2
    assert all(0 < loss < 20 for loss in losses)
    changed = {name.split(".")[1] for name, value in trainer.model.named_parameters() if not value.equal(before[name])}
    assert {"visual", "language_model"} <= changed

    tokenizer = trainer.processing_class.tokenizer
    targets = {row[0]["content"][0]["text"] for row in loaded["train"]["completion"]}
    assert len(recorder.batches) == len(recorder.pictures) == 2
    for batch, picture in zip(recorder.batches, recorder.pictures, strict=True):
        # One collage per record, all of whose image tokens are in the input.
        assert batch["input_ids"].shape[0] == batch["image_grid_thw"].shape[0] == 2
        patches = batch["image_grid_thw"].prod(dim=1)
        assert batch["pixel_values"].shape[0] == int(patches.sum())
        in_text = (batch["input_ids"] == trainer.processing_class.image_token_id).sum(dim=1)
        assert in_text.tolist() == (patches // 4).tolist()
        assert min(in_text.tolist()) >= 50
        assert torch.equal(picture.float(), batch["pixel_values"].float())
        assert batch["pixel_values"].float().std() > 0.1
        # The loss is over the target alone.
        for labels in batch["labels"]:
            text = tokenizer.decode(labels[labels != -100])
            assert text.removesuffix("<|im_end|>\n").removeprefix("<|im_start|>assistant\n") in targets


def test_streamed_rows_train_too(small_store: Path, model_folder: Path, tmp_path: Path) -> None:
    rows = load_dataset(str(small_store / "dataset"), "sokoban", split="train", streaming=True)
    trainer = _trainer(model_folder, tmp_path, rows)
    recorder = Recorder(trainer.model)
    trainer.train()
    assert all(0 < loss < 20 for loss in _losses(trainer))
    assert all(batch["pixel_values"].shape[0] > 0 for batch in recorder.batches)


def test_the_validation_side_is_evaluated(small_store: Path, model_folder: Path, tmp_path: Path) -> None:
    loaded: Any = load_dataset(str(small_store / "dataset"), "sokoban")
    trainer = _trainer(model_folder, tmp_path, loaded["train"], loaded["validation"])
    assert 0 < trainer.evaluate()["eval_loss"] < 20


def test_the_loss_depends_on_the_picture(small_store: Path, model_folder: Path, tmp_path: Path) -> None:
    rows: Any = load_dataset(str(small_store / "dataset"), "sokoban", split="train")
    trainer = _trainer(model_folder, tmp_path, rows)
    batch = trainer.data_collator([rows[0], rows[1]])
    with torch.no_grad():
        seen = trainer.model(**batch).loss
        blind = trainer.model(**{**batch, "pixel_values": torch.zeros_like(batch["pixel_values"])}).loss
    assert torch.isfinite(seen)
    assert abs(float(seen - blind)) > 1e-6


def test_pictures_as_tensors(small_store: Path, offline: None) -> None:
    """Channels first, RGB whether the file is indexed or not."""
    rows: Any = load_dataset(str(small_store / "dataset"), "sokoban", split="train")
    for tensors, plain in zip(rows.with_format("torch"), rows, strict=True):
        for tensor, picture in [(tensors["panel"], plain["panel"]), (tensors["images"][0], plain["images"][0])]:
            assert (tensor.dtype, tuple(tensor.shape)) == (torch.uint8, (3, picture.height, picture.width))
            assert tensor[:, 5, 7].tolist() == list(picture.convert("RGB").getpixel((7, 5)))
        assert int(tensors["pivot_step"]) == plain["pivot_step"]
