"""The public tables: their columns, and one schema for every writer and reader."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pivot.datasets.store import schema as tables
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.schema import CALLS, CERTIFICATE, DATASET, DATASET_EPISODES, EPISODES, FRAMES, LABELS, PROMPTS
from pivot.datasets.store.store import Store
from pivot.docs.assets.reference_pages import ALL_TABLES
from pivot.tests.stores import schema_of

from datasets import ClassLabel, Dataset, Features, Image, List, Value

PROMISED = {
    EPISODES: """episode_id run_id env env_version env_config backend task_id goal_idx eval_set seed group_id sample_idx
        instruction state_format initial_state horizon num_steps actions rewards episode_return status success failed
        stop_reason error policy policy_config""",
    tables.STEPS: """episode_id t prompt_hash observation_text response finish_reason response_token_ids
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


@pytest.mark.parametrize("schema", ALL_TABLES, ids=lambda schema: schema.name)
def test_an_empty_table_has_the_same_schema(schema: tables.TableSchema) -> None:
    assert schema.table([]).schema.equals(schema.arrow, check_metadata=True)
    assert schema.table([], features=True).schema.equals(schema.arrow_with_features(), check_metadata=True)


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
