"""The public tables as lists of column declarations.

Each table is a :class:`TableSchema`: the Parquet schema, the Hugging Face features and the column reference in the docs
are all derived from its columns. Those of a table that holds a record stand at the record
(:mod:`pivot.core.records`), those of the others here. Columns may be added; names and meaning of existing ones stay.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa

from ...core.messages import Call, EncodedFrame, PromptMessages
from ...core.records import Stored, stored_fields
from ...labeling.base import Label
from ...rollouts.base import Episode, Step
from ...solvers.base import FAILURE_MODES, Certificate

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""Struct in which the Hugging Face library stores an image."""

STRINGS = pa.list_(pa.string())

MESSAGES = pa.list_(
    pa.struct([("role", pa.string()), ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())])))])
)
"""TRL conversational parts; an image part has type ``image`` and null text."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Arrow type and meaning."""

    name: str
    type: pa.DataType
    doc: str
    labels: tuple[str, ...] | None = None
    """Class names, for a Hugging Face ``ClassLabel`` stored as int64."""
    required: bool = False
    """Whether no row holds a null."""


def columns_of(record: type) -> tuple[Column, ...]:
    """Return the columns of a record's table."""
    return tuple(
        Column(each.name, arrow_type(each.type, each.stored), each.stored.doc, required=each.required)
        for each in stored_fields(record)
    )


def arrow_type(kind: Any, stored: Stored) -> pa.DataType:
    """Return the Arrow type of a stored field; a record within a record is a struct, a list of them a list."""
    if stored.json or get_origin(kind) is Literal:
        return pa.string()
    if get_origin(kind) in (list, tuple):
        return pa.list_(arrow_type(get_args(kind)[0], stored))
    if is_dataclass(kind):
        return pa.struct([(each.name, arrow_type(each.type, each.stored)) for each in stored_fields(kind)])
    if issubclass(kind, str):
        return pa.string()
    return {bool: pa.bool_(), int: pa.int64() if stored.wide else pa.int32(), float: pa.float64(), bytes: pa.binary()}[
        kind
    ]


CERTIFICATE = arrow_type(Certificate, Stored("The facts behind the label."))


@dataclass(frozen=True)
class TableSchema:
    """A table: its columns, in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    repeats: bool = False
    """Whether its pictures repeat from row to row: equal ones of a row group are then stored once."""

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Parquet schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    def arrow_with_features(self, labels: Sequence[str] | None = None) -> pa.Schema:
        """The Parquet schema with the metadata that lets ``datasets`` decode images and class labels.

        ``labels`` replace the class names that the column declares, in a run that has more of them.
        """
        features = {
            column.name: _feature_of(column.type)
            if column.labels is None
            else {"names": list(labels or column.labels), "_type": "ClassLabel"}
            for column in self.columns
        }
        return self.arrow.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names."""
        return tuple(column.name for column in self.columns)

    def only(self, *names: str) -> list[Column]:
        """Return the columns of these names, in this order; a table with them is a table of this schema, too."""
        return [self.columns[self.names.index(name)] for name in names]

    def table(
        self, rows: Sequence[dict[str, Any]], *, features: bool = False, labels: Sequence[str] | None = None
    ) -> pa.Table:
        """Build the Arrow table of ``rows``; a row must have exactly the declared columns."""
        columns = {name: [row[name] for row in rows] for name in self.names}
        arrays = [pa.array(columns[column.name], type=column.type) for column in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.arrow_with_features(labels) if features else self.arrow)

    @cached_property
    def image_paths(self) -> tuple[str, ...]:
        """Parquet paths of the leaf columns that hold encoded images: stored without a second compression."""
        leaves = (leaf for column in self.columns for leaf in _leaves(column.name, column.type))
        return tuple(path for path, kind in leaves if pa.types.is_binary(kind))

    @cached_property
    def leaf_paths(self) -> tuple[str, ...]:
        """Parquet paths of all leaf columns."""
        return tuple(path for column in self.columns for path, _ in _leaves(column.name, column.type))


def _leaves(path: str, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    if isinstance(kind, pa.StructType):
        return [leaf for field in kind for leaf in _leaves(f"{path}.{field.name}", field.type)]
    if isinstance(kind, pa.ListType):
        return _leaves(f"{path}.list.element", kind.value_type)
    return [(path, kind)]


_DTYPES = {pa.string(): "string", pa.bool_(): "bool", pa.binary(): "binary", pa.int32(): "int32", pa.int64(): "int64"}


def _feature_of(kind: pa.DataType) -> dict[str, Any]:
    """Return the ``datasets`` feature of an Arrow type, as ``Features.to_dict`` would write it."""
    if kind == IMAGE:
        return {"mode": "RGB", "_type": "Image"}
    if isinstance(kind, pa.StructType):
        return {field.name: _feature_of(field.type) for field in kind}
    if isinstance(kind, pa.ListType):
        return {"feature": _feature_of(kind.value_type), "_type": "List"}
    return {"dtype": _DTYPES.get(kind, "float64"), "_type": "Value"}


EPISODES = TableSchema("episodes", "One row per rollout.", columns_of(Episode))
STEPS = TableSchema("steps", "One row per turn.", columns_of(Step))
FRAMES = TableSchema("frames", "One row per distinct frame of a shard.", columns_of(EncodedFrame))
PROMPTS = TableSchema("prompts", "One row per distinct rendered prompt of a shard.", columns_of(PromptMessages))
CALLS = TableSchema(
    "calls",
    "One row per request to a policy or teacher. The only table that may differ between equal runs.",
    columns_of(Call),
)

LABELS = TableSchema(
    "labels",
    "One row per failed, complete episode and label version; rejected labels are kept with all their reasons.",
    columns_of(Label),
)

DATASET = TableSchema(
    "dataset",
    "What a trainer loads: one row per accepted failure.",
    (
        *EPISODES.only("episode_id", "env", "env_config", "task_id", "goal_idx", "eval_set"),
        Column("images", pa.list_(IMAGE), "The step-labelled collage."),
        Column("panel", IMAGE, "Tiles before, at and after the pivot step; for svg the drawings, never the target."),
        Column("prompt", MESSAGES, "Analyzer prompt, TRL conversational parts."),
        Column("completion", MESSAGES, "Target JSON as the assistant's turn."),
        Column("pivot_step", pa.int32(), "t*, 0-based."),
        Column("failure_mode", pa.string(), "m*, the certificate's word; targets may use the paper's for svg."),
        Column("failure_mode_id", pa.int64(), "m* as a class label.", FAILURE_MODES),
        *LABELS.only("failure_reason"),
        *EPISODES.only("actions"),
        Column("action_log", pa.string(), "Compact log as the prompt shows it, one line per step."),
        *EPISODES.only("initial_state", "horizon", "num_steps", "episode_return"),
        *LABELS.only("certificate", "proved", "witness", "infeasible_at_start"),
        *EPISODES.only("policy"),
        *LABELS.only("teacher"),
        Column("solver", pa.string(), "Solver that found the label, and its version."),
        *LABELS.only("prompt_hash", "guidance_source", "pivot_action", "evidence"),
    ),
)

DATASET_EPISODES = TableSchema(
    "dataset_episodes",
    "Whole episodes, successes too: one row per episode, frames in order.",
    (
        *EPISODES.only("episode_id", "env", "env_config", "task_id", "goal_idx", "eval_set"),
        *EPISODES.only("group_id", "sample_idx", "instruction"),
        Column("images", pa.list_(IMAGE), "Frames o_0..o_T in order, the terminal one last."),
        *EPISODES.only("actions"),
        Column("responses", STRINGS, "Raw replies, one per step."),
        *EPISODES.only("rewards", "initial_state", "horizon", "num_steps", "episode_return", "success", "failed"),
        *EPISODES.only("policy"),
    ),
    repeats=True,
)

STORE_TABLES = (EPISODES, STEPS, FRAMES, PROMPTS, CALLS)
"""Tables written by the rollout stage."""
