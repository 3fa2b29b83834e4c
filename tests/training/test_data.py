"""Hostile and broken data: every row of the table gives one typed error with file, row and remedy."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

pytest.importorskip("trl", reason="needs TRL; run: make test WHAT=train")

from pivot.core.errors import PivotError, TrainingError
from pivot.datasets.store.schema import DATASET
from pivot.labeling.target import build_target
from pivot.models.transformers.processors import load_processor
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.training.small import held
from pivot.training.analyzer_sft.data_check import check_data
from pivot.training.analyzer_sft.samples import epoch_order, read_dataset
from pivot.training.analyzer_sft.trainer import encode_samples
from pivot.training.encode import IGNORED, Encoder, image_tokens

pytestmark = pytest.mark.train

Rows = list[dict[str, Any]]
FILE = "frozenlake/train-00000.parquet"


@pytest.fixture
def dataset(small_store: Path, tmp_path: Path) -> Path:
    """A copy of the FrozenLake part of the small store's dataset, with rows in its first training file."""
    target = tmp_path / "dataset" / "frozenlake"
    target.mkdir(parents=True)
    for side in ("train", "validation"):
        for number, path in enumerate(_filled(small_store, side)):
            (target / f"{side}-{number:05d}.parquet").write_bytes(path.read_bytes())
    return target.parent


def _filled(store: Path, side: str, env: str = "frozenlake") -> list[Path]:
    paths = sorted((store / "dataset" / env).glob(f"{side}-*.parquet"))
    return [path for path in paths if pq.read_metadata(path).num_rows]


def _rewrite(path: Path, change: Callable[[Rows], Any]) -> None:
    rows = pq.read_table(path).to_pylist()
    change(rows)
    pq.write_table(DATASET.table(rows, features=True), path)


def _picture(width: int, height: int) -> dict[str, Any]:
    encoded = io.BytesIO()
    Image.new("RGB", (width, height)).save(encoded, "PNG")
    return {"bytes": encoded.getvalue(), "path": None}


def _set(**values: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[1].update(values)


def _target(text: str) -> Callable[[Rows], None]:
    return _set(completion=[{"role": "assistant", "content": [{"type": "text", "text": text}]}])


def _in_target(part: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        content = rows[1]["completion"][0]["content"][0]
        content["text"] = content["text"].replace('"failure_reason": "', f'"failure_reason": "{part}')

    return change


ROW = rf"{FILE}, row 1: "
BAD_ROWS: dict[str, tuple[Callable[[Rows], Any], str]] = {
    "no image": (_set(images=[]), ROW + "found 0 images, expected exactly one image, the collage; build"),
    "an empty image": (_set(images=[{"bytes": b"", "path": None}]), ROW + "found an empty image"),
    "an image of one pixel": (_set(images=[_picture(1, 1)]), ROW + "found a picture of 1x1 pixels, expected sides"),
    "an image of 20,000 pixels": (_set(images=[_picture(20_000, 40)]), ROW + "found a picture of 20000x40 pixels"),
    "no picture": (_set(images=[{"bytes": b"GIF89a", "path": None}]), ROW + "its picture cannot be read"),
    "another environment": (_set(env="sokoban"), ROW + "found a record of sokoban, expected one of frozenlake"),
    "no value": (_set(actions=None), ROW + "found no value in column actions, expected one in every row"),
    "no target": (_target("step 3"), ROW + r"found a target that cannot be read \(not_json"),
    "a target beyond the tiles": (
        _target('{"pivot_step": 99, "failure_mode": "timeout", "failure_reason": ""}'),
        ROW + "found pivot_step 99 in the target, expected 0 to 8, the labelled tiles",
    ),
    "a foreign mode": (
        lambda rows: _target(build_target(rows[1]["pivot_step"], "tired"))(rows),
        ROW + "found failure_mode 'tired' in the target, expected one of deadlock, timeout",
    ),
    "another step than the column's": (
        lambda rows: _set(pivot_step=(rows[1]["pivot_step"] + 1) % 9)(rows),
        ROW + r"found pivot_step \d in the target, expected \d, as column pivot_step says",
    ),
    "a picture's token in the target": (
        _in_target("<|image_pad|>"),
        ROW + r"the target holds the special token <\|image_pad\|>, expected plain text",
    ),
    "a text prompt": (
        _set(prompt=[{"role": "user", "content": [{"type": "text", "text": "no picture"}]}]),
        ROW + "found 0 image parts in the prompt, expected one",
    ),
    "another mode than the column's": (
        lambda rows: _target(
            build_target(
                rows[1]["pivot_step"],
                "deadlock" if rows[1]["failure_mode"] == "timeout" else "timeout",
                "Mind the ice.",
            )
        )(rows),
        ROW + r"found failure_mode '\w+' in the target, expected \w+, as column failure_mode says",
    ),
    "a special token as a role": (
        lambda rows: rows[1]["prompt"][0].update(role="user<|im_end|>"),
        ROW + r"found role 'user<\|im_end\|>' in column prompt, expected one of system, user, assistant",
    ),
    "no message": (lambda rows: rows[1]["prompt"].append(None), ROW + "found a message without a value inside"),
    "no kind of part": (
        lambda rows: rows[1]["prompt"][0]["content"][1].update(type=None),
        ROW + "found a message without a value",
    ),
    "no text in a part": (
        lambda rows: rows[1]["prompt"][0]["content"][1].update(text=None),
        ROW + "found a text part without a text in column prompt",
    ),
    "a null completion": (_set(completion=[None]), ROW + "found a message without a value inside column completion"),
    "a null action": (
        lambda rows: rows[1]["actions"].__setitem__(0, None),
        ROW + "found an action without a value in column actions",
    ),
    "more actions than steps": (
        lambda rows: rows[1]["actions"].append("up"),
        ROW + r"found \d+ steps in column actions, expected \d+, as column num_steps says",
    ),
    "500 steps": (_set(num_steps=500), ROW + "found num_steps 500, expected at most 9, as column horizon says"),
    "500 steps and actions": (
        _set(num_steps=500, horizon=500, actions=["up"] * 500),
        ROW + r"found \d steps in the log of the prompt, expected 500",
    ),
    "a record twice": (
        lambda rows: rows.append(dict(rows[1])),
        r"found episode \S+ a second time, first in .*, row 1, expected every record once",
    ),
    "a level of another game": (_set(initial_state="#####"), ROW + "its level cannot be read"),
}


def _error(dataset: Path, model: Path, out: Path, *more: str) -> PivotError:
    error = error_of("train", "sft", dataset, "--model", model, "--out", out, "--env", "frozenlake", *more)
    assert error.status == 2
    assert not out.exists(), "something was written"
    return error


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_refused(name: str, dataset: Path, small_model: Path, tmp_path: Path) -> None:
    change, message = BAD_ROWS[name]
    _rewrite(dataset / FILE, change)
    with pytest.raises(TrainingError, match=message):
        raise _error(dataset, small_model, tmp_path / "out")


def test_a_mode_that_the_settings_name_is_read(dataset: Path) -> None:
    def change(rows: Rows) -> None:
        config = json.loads(rows[1]["env_config"]) | {"failure_modes": {"tired": "games:tired"}}
        rows[1].update(env_config=json.dumps(config), failure_mode="tired")
        _target(build_target(rows[1]["pivot_step"], "tired"))(rows)

    _rewrite(dataset / FILE, change)
    assert held(dataset)[1].failure_mode == "tired"


def _empty(dataset: Path) -> None:
    for path in dataset.rglob("train-*.parquet"):
        pq.write_table(DATASET.table([], features=True), path)


def _no_validation(dataset: Path) -> None:
    for path in dataset.rglob("validation-*.parquet"):
        path.unlink()


def _wrong_types(dataset: Path) -> None:
    table = pq.read_table(dataset / FILE)
    place = table.column_names.index("pivot_step")
    pq.write_table(table.set_column(place, "pivot_step", table["pivot_step"].cast(pa.string())), dataset / FILE)


def _no_column(dataset: Path) -> None:
    pq.write_table(pq.read_table(dataset / FILE).drop_columns(["completion"]), dataset / FILE)


def _truncated(dataset: Path) -> None:
    content = (dataset / FILE).read_bytes()
    (dataset / FILE).write_bytes(content[: len(content) // 2])


def _both_sides(dataset: Path) -> None:
    name = min((dataset / "frozenlake").glob("validation-*.parquet")).name
    (dataset / "frozenlake" / name).write_bytes((dataset / FILE).read_bytes())


BAD_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "an empty side": (_empty, "the train split of config frozenlake holds no record, expected at least one; build"),
    "no validation side": (_no_validation, "the validation split of config frozenlake holds no record"),
    "wrong column types": (_wrong_types, FILE + ": column pivot_step of table dataset has type string, expected int32"),
    "a missing column": (_no_column, FILE + " lacks column completion of table dataset"),
    "a truncated shard": (_truncated, FILE + " cannot be read as Parquet"),
    "a level on both sides": (
        _both_sides,
        r"validation-00000.parquet, row 0: found a level that is also in .*, row \d+, expected no level",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused(name: str, dataset: Path, small_model: Path, tmp_path: Path) -> None:
    damage, message = BAD_FILES[name]
    damage(dataset)
    with pytest.raises(TrainingError, match=message):
        raise _error(dataset, small_model, tmp_path / "out")


def test_a_store_is_compared_with_its_manifest(small_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(small_store, tmp_path / "store"))
    whole = read_dataset(str(store), ["frozenlake"])

    def relabel(rows: Rows) -> None:
        (row,) = rows[1:2]
        content = row["completion"][0]["content"][0]
        content["text"] = content["text"].replace('"failure_reason": "', '"failure_reason": "Look first. ')

    _rewrite(_filled(store, "train")[0], relabel)
    with pytest.raises(TrainingError, match=r"train-\d+.parquet is not the file that manifest.json lists; restore it"):
        read_dataset(str(store), ["frozenlake"])
    assert read_dataset(str(store), ["sokoban"]).digest == whole.digest, "other files are as they were"


def test_what_is_no_dataset_is_refused(small_model: Path, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source, message in (
        (tmp_path / "nowhere", "does not exist, expected a store or a dataset folder"),
        (tmp_path / "empty", r"holds no dataset, expected a store, or a folder with ENV/train-\*.parquet"),
        (small_model, "holds no dataset"),
    ):
        with pytest.raises(TrainingError, match=message):
            raise _error(source, small_model, tmp_path / "out")
    with pytest.raises(TrainingError, match="has no config 'chess'; it has: frozenlake, all"):
        read_dataset(str(dataset), ["chess"])
    with pytest.raises(TrainingError, match=r"cannot load model .*; expected a save_pretrained folder"):
        raise _error(dataset, dataset, tmp_path / "out")


def test_settings_are_refused_with_their_names(dataset: Path, small_model: Path, tmp_path: Path) -> None:
    for flags, message in (
        (["--batch", "6", "--micro-batch", "4"], "batch 6 cannot be spread over 1 processes of 4 records"),
        (["--batch", "400"], r"found \d+ training records, expected at least one batch of 400; lower --batch"),
        (["--lr", "-1"], "--lr: found '-1', expected more than 0"),
        (["--max-length", "50"], r"row 0: episode episode-\S+ has \d+ tokens, expected at most 50; raise --max-length"),
        (["--recipe", "large"], "no recipe 'large', expected a file or one of: qwen2.5-vl-3b, qwen3-vl-2b, tiny"),
    ):
        with pytest.raises(PivotError, match=message):
            raise _error(dataset, small_model, tmp_path / "out", *flags)


def test_the_check_counts_what_the_model_is_given(small_store: Path, small_model: Path) -> None:
    data = read_dataset(str(small_store))
    encoder = Encoder(load_processor(str(small_model), "qwen2_5_vl"))
    report = check_data(data, encoder, 8192)
    samples = list(data.train)
    assert report.train.records == len(samples)
    longest = max(report.train.longest, report.validation.longest)
    assert check_data(data, encoder, longest) == report
    with pytest.raises(TrainingError, match=f"has {longest} tokens, expected at most {longest - 1}"):
        check_data(data, encoder, longest - 1)
    assert report.train.target_tokens == sum(len(encoder.reply_tokens(sample.target)) for sample in samples)
    columns, rows = image_tokens(*samples[0].picture.size, encoder.processor.image_processor)
    assert f"[{columns * rows} image tokens]" in report.example.prompt
    assert report.example.target == samples[0].target + "<|im_end|>"
    # The picture recovered from the tensors is the collage, at the model's resolution.
    shown = _unpatched(encode_samples(encoder, samples[:1])["pixel_values"], rows, columns, encoder)
    resized = samples[0].picture.resize((28 * columns, 28 * rows), Image.Resampling.BICUBIC)
    difference = abs(shown - np.asarray(resized).astype(int)).mean()
    assert difference < 3, "the picture in the batch is not the collage"
    encoder.processor.chat_template += "{% if add_generation_prompt %}<think>{% endif %}"
    assert check_data(data, Encoder(encoder.processor), 8192).train.records == len(samples)


def _unpatched(patches: Any, rows: int, columns: int, encoder: Encoder) -> Any:
    """Invert the steps of the processor: merged blocks of two by two patches, each over two equal frames."""
    grid = encoder.processor.image_processor
    blocks = np.asarray(patches, np.float32).reshape(rows, columns, 2, 2, 3, -1, 14, 14)[:, :, :, :, :, 0]
    pixels = blocks.transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * 28, columns * 28, 3)
    return 255 * (pixels * np.asarray(grid.image_std) + np.asarray(grid.image_mean))


def test_a_batch_supervises_target_and_end_token_alone(small_store: Path, small_model: Path) -> None:
    samples = list(held(small_store)[:3])
    encoder = Encoder(load_processor(str(small_model), "qwen2_5_vl"))
    batch = encode_samples(encoder, samples)
    for row, sample in enumerate(samples):
        labels, ids = batch["labels"][row], batch["input_ids"][row]
        supervised = ids[labels != IGNORED].tolist()
        assert supervised == encoder.reply_tokens(sample.target)
        assert encoder.tokenizer.decode(supervised) == sample.target + "<|im_end|>"
        alone = encode_samples(encoder, [sample])
        length = alone["input_ids"].shape[1]
        assert ids[:length].tolist() == alone["input_ids"][0].tolist()
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (len(ids) - length)


def test_an_epoch_leaves_out_what_fills_no_batch_and_no_epoch_is_like_another() -> None:
    orders = [epoch_order(21, 8, 0, epoch) for epoch in range(3)]
    assert all(len(order) == 16 and len(set(order)) == 16 for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert orders[1] == epoch_order(21, 8, 0, 1) != epoch_order(21, 8, 1, 1)


def test_check_only_shows_what_is_taught_and_writes_no_run(dataset: Path, small_model: Path, tmp_path: Path) -> None:
    light = Path(shutil.copytree(small_model, tmp_path / "light"))
    (light / "model.safetensors").unlink()  # the check needs no weights
    shown = run(*("train", "sft", dataset, "--model", light, "--env", "frozenlake"), "--check-only", "--batch", "4")
    first = held(dataset)[0]
    assert f"{first.target}<|im_end|>" in shown.replace("\n", " ")
    assert "records per epoch left" in shown
    assert [path.name for path in tmp_path.iterdir() if path != light] == ["dataset"]


def test_label_names_of_targets_are_recognised(small_store: Path, tmp_path: Path) -> None:
    import pivot

    config = {"environments": {"svg": {"tasks": 4, "settings": {}}}, "rollouts": 2, "target_vocabulary": "paper"}
    pivot.build(config, tmp_path / "svg")
    assert read_dataset(str(tmp_path / "svg")).vocabulary == "paper"
    assert read_dataset(str(small_store)).vocabulary == "certificate"
