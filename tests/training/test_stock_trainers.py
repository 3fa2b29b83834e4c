"""TRL's stock trainers take two steps on the dataset and on exports as they are; other pictures change the loss."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.models.transformers.processors import image_text_class
from pivot.tests.interop.test_judge import SOURCES, play
from pivot.tests.models.tiny_vlm import save_tiny_vlm

from datasets import load_dataset

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
trl = pytest.importorskip("trl")

pytestmark = pytest.mark.train

ASKED = {"corrections": ("prompt", "completion"), "pairs": ("prompt", "chosen", "rejected")}
"""Columns of texts by export."""


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No hub, and a temporary cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        patch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
        yield


def model_of(folder: Path, columns: Iterable[Any]) -> Path:
    """Save a model whose tokenizer is trained on columns of messages."""
    parts = (part for rows in columns for messages in rows for message in messages for part in message["content"])
    save_tiny_vlm(folder, [part["text"] for part in parts if part["text"]])
    return folder


@pytest.fixture(scope="module")
def model_folder(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model whose tokenizer has read the dataset."""
    rows: Any = load_dataset(str(small_store / "dataset"), "all", split="train")
    return model_of(tmp_path_factory.mktemp("model"), [rows["prompt"], rows["completion"]])


class Recorder:
    """Keeps what a model and its vision tower were given."""

    def __init__(self, model: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        self.pictures: list[Any] = []
        model.register_forward_pre_hook(lambda _, args, kwargs: self.batches.append(dict(kwargs)), with_kwargs=True)
        model.model.visual.register_forward_pre_hook(
            lambda _, args, kwargs: self.pictures.append((args or (kwargs["hidden_states"],))[0]), with_kwargs=True
        )


PLAIN = {"use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "logging_steps": 1, "seed": 0}


def _trainer(folder: Path, out: Path, train: Any, *, kind: str = "SFT", batch: int = 2) -> Any:
    processor = image_text_class("qwen2_5_vl").from_pretrained(folder)
    transformers.set_seed(0)
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
    arguments = getattr(trl, f"{kind}Config")(
        output_dir=str(out),
        max_steps=2,
        per_device_train_batch_size=batch,
        learning_rate=1e-3,
        max_length=None,
        **PLAIN,
    )
    return getattr(trl, f"{kind}Trainer")(model=model, args=arguments, train_dataset=train, processing_class=processor)


def _losses_of(trainer: Any) -> list[float]:
    """Train, and return the losses of two steps, in which both halves of the model learn."""
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    moved = {name.split(".")[1] for name, value in trainer.model.named_parameters() if not value.equal(before[name])}
    assert {"visual", "language_model"} <= moved
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and all(0 < loss < 20 for loss in losses)
    return losses


def test_two_steps_on_the_dataset(small_store: Path, model_folder: Path, tmp_path: Path) -> None:
    """Catch rows of which a stock trainer drops the picture, or supervises more than the target."""
    loaded: Any = load_dataset(str(small_store / "dataset"), "all")
    trainer = _trainer(model_folder, tmp_path, loaded["train"])
    recorder = Recorder(trainer.model)
    _losses_of(trainer)
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


# Exports


LATER = [pytest.param(name, marks=pytest.mark.long) for name in SOURCES if name != "chats"]


@pytest.fixture(scope="module", params=["store", "chats", *LATER])
def exported(request: pytest.FixtureRequest, small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Training rows by format, of PIVOT's own rollouts or of an import, and a model that read them."""
    root, store = tmp_path_factory.mktemp("rows"), small_store
    if request.param != "store":
        write, env, form = SOURCES[request.param]
        (root / "source").mkdir()
        chats = play(root / "source", env, form, legend=request.param != "vagen", count=8)
        store = root / "store"
        options = {} if request.param == "vagen" else {"dialect": "auto"}
        pivot.import_rollouts(**write(root / "source", chats), out=store, options=options, require=())
    rows: dict[str, Any] = {}
    for kind in ASKED:
        pivot.export(store, root / kind, format=kind, workers=1)
        rows[kind] = load_dataset(str(root / kind), split="train").select(range(4))
    return rows, model_of(root / "model", [rows[kind][name] for kind, names in ASKED.items() for name in names])


def _blank(data: Any) -> Any:
    """Return the rows with black pictures of the same size in place of theirs."""
    from PIL import Image

    return data.map(
        lambda row: {"images": [Image.new("RGB", image.size) for image in row["images"]]},
        features=data.features,
        load_from_cache_file=False,
    )


@pytest.mark.parametrize(("kind", "trainer", "step"), [("corrections", "SFT", 0), ("pairs", "DPO", 1)])
def test_two_steps_on_an_export(kind: str, trainer: str, step: int, exported: Any, tmp_path: Path) -> None:
    """The first loss of DPO is ln 2 whatever is seen: policy and reference are then equal."""
    rows, folder = exported
    if any(message.get("tool_calls") for row in rows[kind] for message in row["prompt"]):
        # The model's own template, that of Qwen2.5-VL, shows no calls of tools: both replies would be empty.
        (folder / "chat_template.jinja").write_text(trl.chat_template_utils.qwen3_vl_chat_template)
    own, again, blank = (
        _losses_of(_trainer(folder, tmp_path / name, data, kind=trainer, batch=4))
        for name, data in (("own", rows[kind]), ("again", rows[kind]), ("blank", _blank(rows[kind])))
    )
    assert own[step] == again[step] != blank[step]


def test_distillation_sees_the_pictures_of_privileged_rows(small_store: Path, tmp_path: Path) -> None:
    """TRL's DistillationTrainer reads ``prompt`` and ``images``; other pictures change what its teacher says."""
    out = tmp_path / "privileged"
    pivot.export(small_store, out, format="privileged", workers=1)
    rows: Any = load_dataset(str(out), split="train").select_columns(["prompt", "images"])
    folder, losses = model_of(tmp_path / "model", [rows["prompt"]]), list[float]()
    for data in (rows, _blank(rows)):
        transformers.set_seed(0)
        student, teacher = (
            transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
            for _ in range(2)
        )
        with torch.no_grad():
            for value in teacher.model.language_model.parameters():
                value.add_(torch.randn_like(value) * 0.05)
        short = {"max_steps": 1, "per_device_train_batch_size": 2, "max_completion_length": 4}
        arguments = trl.DistillationConfig(output_dir=str(tmp_path / "out"), **short, **PLAIN)
        processor = image_text_class("qwen2_5_vl").from_pretrained(folder)
        trainer = trl.DistillationTrainer(
            model=student, teacher_model=teacher, args=arguments, train_dataset=data, processing_class=processor
        )
        recorder = Recorder(trainer.teacher_model)
        trainer.train()
        assert recorder.pictures, "the teacher saw no picture"
        losses.append(next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry))
    assert losses[0] != losses[1] and all(loss > 0 for loss in losses)
