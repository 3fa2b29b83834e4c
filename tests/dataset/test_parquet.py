"""Tables and their files: one schema for every writer and reader, unchanged image bytes, codecs of plugins."""

import io
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Picture
from pivot.core.errors import ImageError
from pivot.core.images import CODECS, Codec, Frame, codec
from pivot.core.storage import LocalStorage, open_storage
from pivot.datasets.store import schema as tables
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.parquet import ROW_GROUP, read_table, write_parquet, write_tables
from pivot.datasets.store.schema import (
    CALLS,
    CERTIFICATE,
    DATASET,
    DATASET_EPISODES,
    EPISODES,
    FRAMES,
    LABELS,
    PROMPTS,
    STEPS,
    TableSchema,
)
from pivot.datasets.store.store import Store
from pivot.docs.assets.reference_pages import ALL_TABLES
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.tests.stores import build_tiny, problems, read_rows, schema_of, table_files

from datasets import ClassLabel, Dataset, Features, Image, List, Value

IMAGE_SIZE = 20_000


def _frame_rows(count: int) -> list[dict[str, Any]]:
    fixed = {"width": 96, "height": 96, "format": "png", "byte_size": IMAGE_SIZE}
    return [fixed | {"frame_id": f"{place:064x}", "image": os.urandom(IMAGE_SIZE)} for place in range(count)]


def _written(folder: Path, schema: TableSchema, rows: list[dict[str, Any]]) -> Path:
    write_tables(LocalStorage(folder), [("table.parquet", schema, schema.table(rows))])
    return folder / "table.parquet"


def _episode_rows(count: int, frames: list[bytes]) -> list[dict[str, Any]]:
    """Whole episodes of nine steps that visit few places again and again."""
    empty: dict[str, Any] = dict.fromkeys(DATASET_EPISODES.names)
    pictures = [
        [{"bytes": frames[(place + t) % len(frames)], "path": None} for t in range(10)] for place in range(count)
    ]
    return [empty | {"episode_id": f"episode {place}", "images": images} for place, images in enumerate(pictures)]


def test_every_column_of_a_store_is_compressed_but_images(small_store: Path) -> None:
    seen = {"images": 0, "metadata": 0}
    for name in Store.open(small_store).manifest():
        if not name.endswith(".parquet"):
            continue
        images = set(schema_of(name).image_paths)
        metadata = pq.read_metadata(small_store / name)
        for group in range(metadata.num_row_groups):
            assert metadata.row_group(group).num_rows <= ROW_GROUP <= 256 or not images
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                is_image = column.path_in_schema in images
                assert column.compression == ("UNCOMPRESSED" if is_image else "ZSTD"), (name, column.path_in_schema)
                seen["images" if is_image else "metadata"] += 1
    assert min(seen.values()) > 10


@pytest.mark.parametrize(("schema", "groups"), [(FRAMES, [128, 128, 44]), (EPISODES, [1024]), (FRAMES, [])])
def test_tables_with_pictures_are_cut_into_small_row_groups(
    tmp_path: Path, schema: TableSchema, groups: list[int]
) -> None:
    """Summaries take three times as long where all groups are small; Hugging Face's reader stops at an empty one."""
    count = sum(groups)
    empty: dict[str, Any] = dict.fromkeys(EPISODES.names)
    rows = _frame_rows(count) if schema is FRAMES else [empty | {"episode_id": str(place)} for place in range(count)]
    path = _written(tmp_path, schema, rows)
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == groups
    assert read_table(LocalStorage(tmp_path), path.name, schema).num_rows == count


def _sql(query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def test_repeated_frames_are_stored_once_in_whole_episodes(tmp_path: Path) -> None:
    # Two megabytes of frames: more than the usual limit of a dictionary.
    frames = [os.urandom(100_000) for _ in range(20)]
    table = DATASET_EPISODES.table(_episode_rows(24, frames), features=True)
    distinct, shown = 20 * 100_000, 240 * 100_000
    storage = LocalStorage(tmp_path)
    record = storage.write("once.parquet", partial(write_parquet, DATASET_EPISODES, table))
    assert record.bytes < 1.05 * distinct
    plain = replace(DATASET_EPISODES, repeats=False)
    assert storage.write("all.parquet", partial(write_parquet, plain, table)).bytes > shown
    for name in ("once.parquet", "all.parquet"):
        # Every reader resolves the dictionary by itself.
        assert read_table(storage, name, DATASET_EPISODES).equals(table)
        rows = pl.read_parquet(tmp_path / name)["images"].to_list()
        assert [image["bytes"] for image in rows[5]] == [image["bytes"] for image in table["images"][5].as_py()]
        sql = f"SELECT images[3].bytes FROM '{tmp_path}/{name}' WHERE episode_id = 'episode 7'"
        assert _sql(sql) == [(frames[9],)]


def test_equal_tables_give_equal_bytes(small_store: Path, tmp_path: Path) -> None:
    for name in table_files(small_store, "frozenlake"):
        schema = schema_of(name)
        table = schema.table(read_rows(small_store, name), features=name.startswith("dataset/"))
        write_tables(LocalStorage(tmp_path), [("again.parquet", schema, table)])
        assert (tmp_path / "again.parquet").read_bytes() == (small_store / name).read_bytes(), name


def test_the_tokens_of_long_replies_are_read(tmp_path: Path) -> None:
    rows = {name: pa.nulls(4, STEPS.arrow.field(name).type) for name in STEPS.names}
    rows["response_token_ids"] = pa.array([list(range(1_000_000))] * 4, pa.list_(pa.int32()))
    pq.write_table(pa.table(rows), tmp_path / "steps.parquet")
    read = read_table(open_storage(tmp_path), "steps.parquet", STEPS)
    assert len(read["response_token_ids"][3]) == 1_000_000


def test_the_order_and_metadata_of_columns_with_pictures_stay(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    table = FRAMES.table(_frame_rows(300)).replace_schema_metadata({"key": "value"})
    storage.write("frames.parquet", partial(write_parquet, FRAMES, table))
    assert read_table(storage, "frames.parquet", FRAMES).equals(table, check_metadata=True)
    read = read_table(storage, "frames.parquet", FRAMES, ["image", "frame_id"])
    assert read.equals(table.select(["frame_id", "image"]))


def encode_bmp(frame: Frame) -> bytes:
    """Return the frame as an uncompressed Windows bitmap."""
    buffer = io.BytesIO()
    Picture.fromarray(frame).save(buffer, "BMP")
    return buffer.getvalue()


BMP = Codec(pillow="BMP", mime="image/bmp", suffix="bmp", beginning=re.compile(b"BM"), encode=encode_bmp, lossless=True)


@pytest.fixture
def bitmap_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """FrozenLake with frames of a codec that only the table names."""
    monkeypatch.setitem(CODECS, "bmp", BMP)
    monkeypatch.setattr(FrozenLakeEnv, "encode_frame", lambda _, frame: ("bmp", codec("bmp").encode(frame)))


@pytest.mark.usefixtures("bitmap_lake")
def test_a_store_with_a_codec_of_the_table_is_built_verified_and_shown(tmp_path: Path) -> None:
    root = build_tiny(tmp_path / "store", "frozenlake")
    (frames,) = (root / "frames").rglob("*.parquet")
    assert {row["format"] for row in read_rows(root, str(frames))} == {"bmp"}
    files = (root / "dataset").rglob("frozenlake/*.parquet")
    record = next(row for path in files for row in read_rows(root, str(path)))
    assert BMP.beginning.match(record["images"][0]["bytes"])
    assert problems(root) == []


def test_an_unknown_codec_is_refused_with_the_table() -> None:
    with pytest.raises(ImageError, match=r"'gif': stores hold png, jpeg"):
        codec("gif")


PROMISED = {
    EPISODES: """episode_id run_id env env_version env_config backend task_id goal_idx eval_set seed group_id sample_idx
        instruction state_format initial_state horizon num_steps actions rewards episode_return status success failed
        stop_reason error policy policy_config""",
    STEPS: """episode_id t prompt_hash observation_text response finish_reason response_token_ids
        response_logprobs action payload action_valid moved reward remaining_turns frame_id next_frame_id reply_outcome
        info submission_outcome score_parts snapshot""",
    FRAMES: "frame_id width height format byte_size image",
    PROMPTS: "prompt_hash template version messages",
    CALLS: """request_id episode_id t role attempts latency cost cache_hit model_revision
        prompt_tokens completion_tokens""",
    LABELS: """episode_id label_version pivot_step failure_mode secondary_modes fallback infeasible_at_start certificate
        witness feasible_actions failure_reason target accepted proved reject_reasons solver solver_config teacher
        prompt_hash guidance_source guidance_facts guidance_prose pivot_action""",
    DATASET: """episode_id env task_id goal_idx eval_set images panel prompt completion pivot_step failure_mode
        failure_mode_id failure_reason actions action_log initial_state horizon num_steps episode_return certificate
        proved witness infeasible_at_start policy teacher solver prompt_hash
        guidance_source pivot_action""",
    DATASET_EPISODES: "episode_id env images actions responses rewards success",
    IMPORTS: "place episode_id state_source end_agrees states_agree rewards_agree frames_agree left_out detail",
}
"""Public column names, written by hand so that none disappears unnoticed."""

MODES = [
    *("timeout", "deadlock", "format", "blocked", "stagnation"),
    *("budget", "wrong_target", "order_error", "regression", "mismatch"),
]
"""The public numbering of failure modes: a change would relabel every dataset that was ever published."""


@pytest.mark.parametrize("schema", ALL_TABLES, ids=lambda schema: schema.name)
def test_every_promised_column_is_there_and_documented(schema: tables.TableSchema) -> None:
    assert set(PROMISED[schema].split()) <= set(schema.names)
    assert len(set(schema.names)) == len(schema.names)
    assert all(column.doc and column.doc.endswith(".") for column in schema.columns)


def test_the_types_that_readers_rely_on() -> None:
    types = {f"{schema.name}.{column.name}": column.type for schema in ALL_TABLES for column in schema.columns}
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    assert types["dataset.images"] == pa.list_(image)
    assert types["dataset.panel"] == image
    assert types["dataset.pivot_step"] == types["labels.pivot_step"] == pa.int32()
    assert types["dataset.certificate"] == types["labels.certificate"] == CERTIFICATE
    names = """kind unit budget_before budget_after before after reachable_after raw_before raw_after
        reference_pivot reference_kind reference_before reference_after"""
    assert [field.name for field in CERTIFICATE] == names.split()
    assert types["episodes.rewards"] == types["steps.response_logprobs"] == pa.list_(pa.float64())
    assert types["episodes.seed"] == pa.int64()
    assert types["steps.snapshot"] == types["frames.image"] == pa.binary()
    for column in ("info", "payload"):
        assert types[f"steps.{column}"] == pa.string()


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
