"""TRL's stock trainers take two steps on exports as they are; exchanging the pictures changes the loss."""

from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.models.transformers.processors import image_text_class
from pivot.tests.interop.test_judge import play, write_openai
from pivot.tests.models.tiny_vlm import save_tiny_vlm

from datasets import load_dataset

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
trl = pytest.importorskip("trl")

pytestmark = pytest.mark.train


@pytest.fixture(scope="module", params=["own", "imported"])
def store(request: pytest.FixtureRequest, small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of PIVOT's own rollouts, or of chats in another dialect."""
    if request.param == "own":
        return small_store
    root = tmp_path_factory.mktemp("imported")
    (root / "source").mkdir()
    chats = play(root / "source", "frozenlake", "react", legend=True)
    pivot.import_rollouts(**write_openai(root / "source", chats), out=root / "store", require=())
    return root / "store"


@pytest.fixture(scope="module")
def rows(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Training rows by format, without any change but their number."""
    root = tmp_path_factory.mktemp("rows")
    made: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("datasets.config.HF_DATASETS_CACHE", root / "cache")
        patch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
        for kind in ("corrections", "pairs"):
            pivot.export(store, root / kind, format=kind, workers=1)
            made[kind] = load_dataset(str(root / kind), split="train").select(range(4))
        yield made


@pytest.fixture(scope="module")
def model_folder(rows: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [
        part["text"]
        for kind, names in {"corrections": ("prompt", "completion"), "pairs": ("prompt", "chosen", "rejected")}.items()
        for name in names
        for messages in rows[kind][name]
        for message in messages
        for part in message["content"]
        if part["text"]
    ]
    folder = tmp_path_factory.mktemp("model")
    save_tiny_vlm(folder, texts)
    return folder


def _train(kind: str, data: Any, folder: Path, out: Path) -> list[dict[str, Any]]:
    """Train two steps on one batch; return what the trainer logged."""
    config, trainer = {"corrections": (trl.SFTConfig, trl.SFTTrainer), "pairs": (trl.DPOConfig, trl.DPOTrainer)}[kind]
    arguments = config(
        output_dir=str(out),
        max_steps=2,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        max_length=None,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        seed=0,
    )
    transformers.set_seed(0)
    processor = image_text_class("qwen2_5_vl").from_pretrained(folder)
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    made = trainer(model=model, args=arguments, train_dataset=data, processing_class=processor)
    made.train()
    moved = {name.split(".")[1] for name, value in made.model.named_parameters() if not value.equal(before[name])}
    assert {"visual", "language_model"} <= moved
    return [entry for entry in made.state.log_history if "loss" in entry]


def _exchanged(data: Any) -> Any:
    """Return the rows with black pictures of the same size in place of theirs."""
    from PIL import Image

    return data.map(
        lambda row: {"images": [Image.new("RGB", image.size) for image in row["images"]]},
        features=data.features,
        load_from_cache_file=False,
    )


@pytest.mark.parametrize("kind", ["corrections", "pairs"])
def test_two_steps_of_the_stock_trainer(kind: str, rows: Any, model_folder: Path, tmp_path: Path) -> None:
    logged = _train(kind, rows[kind], model_folder, tmp_path / "own")
    assert len(logged) == 2
    again = _train(kind, rows[kind], model_folder, tmp_path / "again")
    exchanged = _train(kind, _exchanged(rows[kind]), model_folder, tmp_path / "exchanged")
    # The first loss of DPO is ln 2 whatever is seen: policy and reference are then equal.
    step = 0 if kind == "corrections" else 1
    assert logged[step]["loss"] == again[step]["loss"] != exchanged[step]["loss"]
    assert all(0 < entry["loss"] < 20 for entry in logged)
