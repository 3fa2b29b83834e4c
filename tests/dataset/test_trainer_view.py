"""The dataset folder from a trainer's point of view: loaded by the Hugging Face library, offline, as the card says."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from pivot.core.images import decode
from pivot.core.progress import Reporter
from pivot.core.storage import LocalStorage
from pivot.datasets.export.card import row_counts
from pivot.datasets.sql.views import VIEWS, query
from pivot.datasets.store.parquet import write_tables
from pivot.datasets.store.schema import DATASET, DATASET_EPISODES, LABELS
from pivot.datasets.store.store import Store
from pivot.flows.engines.local import InProcess
from pivot.flows.relabel import relabel_store
from pivot.insight.probe.records import ProbeSettings
from pivot.insight.probe.run import probe_store
from pivot.tests.stores import build_tiny, copy_store, problems, stored_rows

from datasets import DatasetDict, Features, load_dataset

ENVS = ("sokoban", "frozenlake")


@pytest.fixture(autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No hub, and a temporary cache."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    yield


def _load(root: Path, config: str | None = None, **options: Any) -> DatasetDict:
    return cast(DatasetDict, load_dataset(str(root / "dataset"), config, **options))


def _stored(root: Path, env: str, side: str, suffix: str = "") -> list[dict[str, Any]]:
    return stored_rows(root, env, f"dataset/{env}{suffix}/{side}-")


@pytest.mark.parametrize("env", ENVS)
def test_a_config_of_each_environment(small_store: Path, env: str) -> None:
    loaded = _load(small_store, env)
    assert set(loaded) == {"train", "validation"}
    assert loaded["train"].features == Features.from_arrow_schema(DATASET.arrow_with_features())
    for side, rows in loaded.items():
        stored = _stored(small_store, env, str(side))
        assert len(rows) == len(stored) > 0
        for row, expected in zip(rows, stored, strict=True):
            row = cast(dict[str, Any], row)
            for name in ("episode_id", "pivot_step", "failure_mode", "certificate", "witness", "prompt", "completion"):
                assert row[name] == expected[name]
            assert rows.features["failure_mode_id"].int2str(row["failure_mode_id"]) == row["failure_mode"]
            (collage,) = row["images"]
            assert isinstance(collage, Image.Image)
            for picture, source in ((collage, expected["images"][0]), (row["panel"], expected["panel"])):
                assert np.array_equal(np.asarray(picture.convert("RGB")), decode(source["bytes"]))


def test_the_default_config_holds_all_environments(small_store: Path) -> None:
    loaded = _load(small_store)
    assert _load(small_store, "all")["train"]["episode_id"][:] == loaded["train"]["episode_id"][:]
    for side in ("train", "validation"):
        names = [row["episode_id"] for env in ENVS for row in _stored(small_store, env, side)]
        assert loaded[side]["episode_id"][:] == names


@pytest.mark.parametrize("env", ENVS)
def test_whole_episodes_with_their_frames(small_store: Path, env: str) -> None:
    loaded = _load(small_store, f"{env}_episodes")
    rows = [cast(dict[str, Any], row) for side in loaded.values() for row in side]
    assert loaded["train"].features == Features.from_arrow_schema(DATASET_EPISODES.arrow_with_features())
    assert len(rows) == 24
    stored = stored_rows(small_store, env, "episodes/")
    assert {row["episode_id"]: row["success"] for row in rows} == {row["episode_id"]: row["success"] for row in stored}
    for row in rows:
        assert len(row["images"]) == row["num_steps"] + 1
        assert len(row["actions"]) == len(row["responses"]) == len(row["rewards"]) == row["num_steps"]
        assert {image.size for image in row["images"]} == {(192, 192) if env == "sokoban" else (256, 256)}


def test_the_card_names_the_configs(small_store: Path) -> None:
    text = (small_store / "dataset/README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---\n")[1])
    names = [config["config_name"] for config in head["configs"]]
    assert names == ["all", "sokoban", "frozenlake", "sokoban_episodes", "frozenlake_episodes"]
    assert [config.get("default", False) for config in head["configs"]] == [True, False, False, False, False]
    example = text.split("```python\n")[1].split("```")[0]
    shown = example.replace("path/to/dataset", str(small_store / "dataset")).replace(".show()", ".load()")
    exec(compile(shown, "README.md", "exec"), {})
    with Image.open(io.BytesIO((small_store / "dataset/example.png").read_bytes())) as picture:
        assert min(picture.size) > 300


@pytest.fixture(scope="module")
def one_sided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one level: all its rows are in one split, the other split has no file."""
    runs = {"frozenlake": {"tasks": 1, "settings": {}}}
    return build_tiny(tmp_path_factory.mktemp("one") / "store", environments=runs, rollouts=4)


def test_a_side_without_rows_is_left_out(one_sided: Path) -> None:
    """The library cannot load an empty split, so the card lists none and the folder has no file for it."""
    counts = row_counts(Store.open(one_sided), "dataset")["frozenlake"]
    (filled,) = [side for side, rows in counts.items() if rows]
    for config in (None, "frozenlake", "frozenlake_episodes"):
        loaded = _load(one_sided, config)
        assert set(loaded) == {filled}
        assert len(loaded[filled]) > 0
    (empty,) = {"train", "validation"} - {filled}
    assert not list((one_sided / "dataset").rglob(f"{empty}-*"))
    assert problems(one_sided) == []


def test_a_store_without_failures_is_whole(tmp_path: Path) -> None:
    """A policy that always wins leaves no label and no file of labels, which every reader accepts."""
    perfect = {"skill": 1e9, "misread": 0, "blunder": 0, "bad_format": 0, "evenness": 0}
    policy = {"name": "scripted", "options": {"habits": {"sokoban": perfect}}}
    root = build_tiny(tmp_path / "store", "sokoban", policy=policy)
    assert [path for path in root.rglob("*.parquet") if not pq.read_metadata(path).num_rows] == []
    labels = Store.open(root).lazy().labels.collect()
    assert (labels.height, tuple(labels.columns)) == (0, LABELS.names)
    with pytest.raises(ValueError, match="BuilderConfig 'sokoban' not found"):
        load_dataset(str(root / "dataset"), "sokoban")
    assert sum(len(rows) for rows in _load(root, "sokoban_episodes").values()) == 4
    assert problems(root) == []
    assert {row[0] for row in query(root, "SELECT env FROM group_rates")[1]} == {"sokoban", "pooled"}
    # A stranger's DuckDB reads the same views, those of labels too.
    with duckdb.connect(str(root / "pivot.duckdb"), read_only=True) as connection:
        connection.execute(f"SET file_search_path = '{root}'")
        assert connection.execute("SELECT count(*), count(certificate.kind) FROM labels").fetchall() == [(0, 0)]
        for view in VIEWS:
            connection.execute(f"FROM {view}").fetchall()
    assert probe_store(root, ProbeSettings(), Reporter()).retries == 0
    relabel_store(root, {"split": "episode"}, InProcess(), Reporter())
    assert problems(root) == []


def test_a_file_that_lost_its_rows_goes(tmp_path: Path) -> None:
    """A file that an interrupted run wrote for a shard is removed if the shard no longer has such rows."""
    name, config = "frozenlake/train-00000.parquet", DATASET
    full = config.table([dict.fromkeys(config.names)], features=True)
    assert set(write_tables(LocalStorage(tmp_path), [(name, config, full)], sparse=True)) == {name}
    assert write_tables(LocalStorage(tmp_path), [(name, config, full.slice(0, 0))], sparse=True) == {}
    assert not (tmp_path / name).exists()


def test_a_relabelled_store_is_never_the_cached_one(tiny_store: Path, tmp_path: Path) -> None:
    """Folder and card are the same but for a digest, so the library could load the old rows from its cache."""
    root = copy_store(tiny_store, tmp_path / "store")
    cache = str(tmp_path / "cache")
    sides = {side: {*rows["episode_id"]} for side, rows in _load(root, "sokoban", cache_dir=cache).items()}
    relabel_store(root, {"split": "episode", "target_vocabulary": "paper"}, InProcess(), Reporter())
    loaded = _load(root, "sokoban", cache_dir=cache)
    for side, rows in loaded.items():
        stored = _stored(root, "sokoban", str(side))
        assert rows["completion"][:] == [row["completion"] for row in stored]
        assert rows["episode_id"][:] == [row["episode_id"] for row in stored]
    assert {side: set(rows["episode_id"]) for side, rows in loaded.items()} != sides
