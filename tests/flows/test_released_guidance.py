"""Stores of release 0.1.0, whose labels do not say what guidance is made of, grow and are labelled again."""

import shutil
from pathlib import Path

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.datasets.parts import load_store
from pivot.datasets.progress import Silent
from pivot.datasets.proof.verify import verify_store
from pivot.datasets.store import Store
from pivot.datasets.views import query
from pivot.tests.stores import make_released, problems

from datasets import load_dataset

SOURCES = "SELECT guidance_source, count(*) FROM labels GROUP BY ALL ORDER BY ALL"

UNSAID = {"guidance", "filters", "label_version", "part"}
"""Fields that a new config has by default."""


@pytest.fixture(scope="module")
def released(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy it before changing anything."""
    return make_released(Path(shutil.copytree(tiny_store, tmp_path_factory.mktemp("released") / "store")))


@pytest.fixture
def store(released: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(released, tmp_path / "store"))


def grow(store: Path) -> int:
    """Append levels of another seed; return the number of their labels."""
    pivot.append(Store.open(store).config.model_copy(update={"seed": 5}).model_dump(mode="json", exclude=UNSAID), store)
    return load_store(store / "parts" / "0001").labels.collect().height


def test_it_holds_and_its_guidance_counts_as_prose(released: Path) -> None:
    report = verify_store(released, Silent())
    assert report.problems == []
    assert any(f"the guidance of {report.checked['labels']} accepted labels is prose" in note for note in report.notes)
    labels = load_store(released).labels.collect()
    assert labels["guidance_source"].null_count() == labels.height > 0


def test_labelled_again_it_is_made_of_facts(store: Path, tiny_store: Path) -> None:
    pivot.relabel(store, {}, keep_old=True)
    report = verify_store(store, Silent())
    assert (report.problems, report.notes) == ([], [])
    labels = load_store(store).labels.collect()
    assert set(labels["guidance_source"]) == {"facts"}
    assert labels.drop("label_version").equals(load_store(tiny_store).labels.collect().drop("label_version"))


def test_it_grows_by_a_part_with_later_columns(store: Path, tmp_path: Path) -> None:
    old = load_store(store).labels.collect().height
    new = grow(store)
    assert problems(store) == []
    assert query(store, SOURCES)[1] == [("facts", new), (None, old)]
    labels = load_store(store).labels.collect()
    assert (labels.height, labels["guidance_source"].null_count()) == (old + new, old)
    loaded = load_dataset(str(store), "all", cache_dir=str(tmp_path / "cache"))
    sources = [source for side in loaded.values() for source in side["guidance_source"]]
    assert (len(sources), sources.count("facts")) == (old + new, new)
    pivot.relabel(store, {})
    assert problems(store) == []
    assert query(store, SOURCES)[1] == [("facts", old + new)]


def test_a_column_cannot_be_taken_from_a_store_of_facts(tiny_store: Path, tmp_path: Path) -> None:
    """Nobody hides what guidance is made of: only a store whose labels do not say it may lack the column."""
    root = Path(shutil.copytree(tiny_store, tmp_path / "store"))
    file = next(root.glob("dataset/sokoban/train-*.parquet"))
    pq.write_table(pq.read_table(file).drop_columns(["guidance_source"]), file)
    assert any("guidance_source" in problem for problem in problems(root))
