"""The public tables: their columns, and one schema for every writer and reader."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pivot.datasets.store import schema as tables
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.schema import DATASET, DATASET_EPISODES, FRAMES
from pivot.datasets.store.store import Store
from pivot.docs.assets.reference_pages import ALL_TABLES
from pivot.tests.stores import schema_of

from datasets import ClassLabel, Dataset, Features, Image, List, Value

MODES = [
    *("timeout", "deadlock", "format", "blocked", "stagnation"),
    *("budget", "wrong_target", "order_error", "regression", "mismatch"),
]
"""The public numbering of failure modes: a change would relabel every dataset that was ever published."""


def test_the_class_labels_keep_their_order() -> None:
    features = Features.from_arrow_schema(DATASET.arrow_with_features())
    assert features["failure_mode_id"] == ClassLabel(names=MODES)
    assert features["failure_mode_id"].str2int("mismatch") == 9


@pytest.mark.parametrize("schema", [DATASET, DATASET_EPISODES], ids=lambda schema: schema.name)
def test_the_schema_is_the_one_that_the_hugging_face_library_writes(schema: tables.TableSchema) -> None:
    features = Features.from_arrow_schema(schema.arrow_with_features())
    assert features.arrow_schema.equals(schema.arrow_with_features(), check_metadata=True)
    assert features["images"] == List(Image(mode="RGB"))
    assert features["actions"] == List(Value("string"))
    empty = Dataset.from_dict({name: [] for name in schema.names}, features=features)
    assert empty.data.schema.equals(schema.arrow_with_features(), check_metadata=True)


def test_a_row_must_have_every_column() -> None:
    with pytest.raises(KeyError, match="width"):
        FRAMES.table([{"frame_id": "a"}])


@pytest.mark.parametrize("schema", ALL_TABLES, ids=lambda schema: schema.name)
def test_leaf_paths_are_those_of_the_parquet_file(schema: tables.TableSchema, tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    pq.write_table(schema.table([]), path)
    parquet_schema = pq.ParquetFile(path).schema
    leaves = [parquet_schema.column(index) for index in range(len(parquet_schema))]
    assert list(schema.leaf_paths) == [leaf.path for leaf in leaves]
    binary = [leaf for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type == "NONE"]
    assert set(schema.image_paths) == {leaf.path for leaf in binary}


def test_every_file_of_a_store_has_the_schema_of_its_table(small_store: Path) -> None:
    store = Store.open(small_store)
    seen: set[str] = set()
    for name in store.manifest():
        if name.endswith(".parquet"):
            schema = schema_of(name)
            modes = store.run.failure_modes
            expected = schema.arrow_with_features(modes) if name.startswith("dataset/") else schema.arrow
            file_schema = pq.read_schema(small_store / name)
            # Parquet calls the items of a list "element"; the types are equal nevertheless.
            assert file_schema.equals(expected), name
            assert file_schema.metadata == expected.metadata, name
            seen.add(schema.name)
    assert seen == {schema.name for schema in ALL_TABLES if schema is not IMPORTS}
    # All environments and splits: equal features, so that any configs concatenate.
    folders = [small_store / "dataset" / env for env in ("sokoban", "frozenlake")]
    records = [pq.read_schema(path).metadata for folder in folders for path in folder.glob("*.parquet")]
    assert len(records) == 6  # two shards, one of them with rows in one split alone
    assert all(metadata == records[0] for metadata in records)
