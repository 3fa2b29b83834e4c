"""Both stages on a machine that has little beside PyTorch, with a dataset of JSON lines and picture files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pivot.core.errors import TrainingError
from pivot.core.images import PNG_SIGNATURE
from pivot.training.analyzer_sft.samples import read_dataset

SCRIPT = """
import json, sys
missing = "prefect duckdb polars datasets trl cv2 numba cairosvg matplotlib pyarrow isal".split()
sys.modules.update(dict.fromkeys(missing))
import pivot, pivot.cli.train
lines, model, out = sys.argv[1:]
quick = {"recipe": "tiny", "model": model, "seed": 1}
sft = pivot.train_sft(quick | {"dataset": lines, "epochs": 1, "max_length": 4096, "out": f"{out}/one"})
sizes = {"updates": 1, "prompts": 1, "rollouts": 2, "max_tokens": 4, "analyzer_tokens": 4, "validation_episodes": 0}
more = {"env": "frozenlake", "settings": {"horizon": 2}, "arm": "oracle", "keep_rollouts": 0}
rl = pivot.train_rl(quick | sizes | more | {"out": f"{out}/two"})
print(json.dumps([sft.updates, rl.last["steps"], [name for name in missing if sys.modules[name]]]))
"""


@pytest.fixture(scope="module")
def lines(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FrozenLake's dataset as JSON lines, as docs/how-to/training.md writes it."""
    folder = tmp_path_factory.mktemp("lines") / "frozenlake"
    folder.mkdir()
    for part in (small_store / "dataset" / "frozenlake").glob("*.parquet"):
        with (folder / part.name).with_suffix(".jsonl").open("w") as stream:
            for row in pq.read_table(part).to_pylist():
                for image in row["images"]:
                    image["path"] = f"{row['episode_id']}.png"
                    (folder / image["path"]).write_bytes(image.pop("bytes"))
                stream.write(json.dumps(row, default=lambda _: None) + "\n")
    return folder.parent


@pytest.mark.train
def test_both_stages_run_without_the_packages_of_builds(lines: Path, small_model: Path, tmp_path: Path) -> None:
    """Catch an import at the top of a module that a GPU node without the pipeline's packages lacks."""
    command = [sys.executable, "-P", "-c", SCRIPT, lines, small_model, tmp_path]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    updates, steps, loaded = json.loads(done.stdout.splitlines()[-1])
    assert updates > 0 and steps > 0 and loaded == []


def test_json_lines_give_the_samples_of_parquet(lines: Path, small_store: Path) -> None:
    ours, theirs = read_dataset(str(lines)), read_dataset(str(small_store), ("frozenlake",))
    for mine, stored in ((ours.train, theirs.train), (ours.validation, theirs.validation)):
        assert [(each.episode_id, each.prompt, each.image, each.target) for each in mine] == [
            (each.episode_id, each.prompt, each.image, each.target) for each in stored
        ]
    (lines / "frozenlake" / f"{ours.train[0].episode_id}.png").write_bytes(ours.train[1].image)
    assert read_dataset(str(lines)).digest != ours.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": None}, "no value in column env"),
        ({"images": [{"path": "../secret"}]}, "picture '../secret'"),
        ({"images": [{"path": "none.png"}]}, "none.png"),
        ({"images": 3}, "a line that cannot be read"),
        ({"num_steps": "two"}, "a value of another type"),
    ],
)
def test_a_bad_line_is_named(change: dict[str, object], words: str, lines: Path, tmp_path: Path) -> None:
    (path,) = sorted((lines / "frozenlake").glob("train-*.jsonl"))[:1]
    row = json.loads(path.read_text().splitlines()[0]) | change
    (tmp_path / "frozenlake").mkdir()
    (tmp_path / "frozenlake" / "train-0.jsonl").write_text(json.dumps(row))
    (tmp_path / "frozenlake" / f"{row['episode_id']}.png").write_bytes(PNG_SIGNATURE)
    with pytest.raises(TrainingError, match=r"train-0.jsonl, row 0: found .*" + words):
        read_dataset(str(tmp_path))
