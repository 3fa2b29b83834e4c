"""The public tables as lists of column declarations (spec section 9).

Each table is a :class:`TableSchema`: name, type and meaning of every column stand together here; the Parquet schema,
the Hugging Face features and the column reference in the docs are all derived from it. Columns may be added; names and
meaning of existing ones stay.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from ..solvers.base import FAILURE_MODES

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""How the Hugging Face library stores an image."""

STRINGS = pa.list_(pa.string())

MESSAGES = pa.list_(
    pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())]))),
        ]
    )
)
"""TRL conversational parts; an image part has type ``image`` and null text."""

CERTIFICATE = pa.struct(
    [
        ("kind", pa.string()),
        ("unit", pa.string()),
        ("budget_before", pa.int32()),
        ("budget_after", pa.int32()),
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("reachable_after", pa.bool_()),
        ("raw_before", pa.float64()),
        ("raw_after", pa.float64()),
        ("reference_pivot", pa.int32()),
        ("reference_kind", pa.string()),
        ("reference_before", pa.float64()),
        ("reference_after", pa.float64()),
    ]
)

REJECTION = pa.struct([("name", pa.string()), ("kind", pa.string()), ("detail", pa.string())])


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Arrow type and meaning."""

    name: str
    type: pa.DataType
    doc: str
    labels: tuple[str, ...] | None = None
    """Class names, for a Hugging Face ``ClassLabel`` stored as int64."""


@dataclass(frozen=True)
class TableSchema:
    """A table: its columns, in order."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Parquet schema."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    def arrow_with_features(self, labels: Sequence[str] | None = None) -> pa.Schema:
        """The Parquet schema with the metadata that lets ``datasets`` decode images and class labels.

        ``labels`` replace the class names that the column declares, in a run that has more of them.
        """
        features = {column.name: _feature(column, labels) for column in self.columns}
        return self.arrow.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names."""
        return tuple(column.name for column in self.columns)

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
        paths = [path for column in self.columns for path in _binary_leaves(column.name, column.type)]
        return tuple(paths)

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


def _binary_leaves(path: str, kind: pa.DataType) -> list[str]:
    return [leaf for leaf, leaf_type in _leaves(path, kind) if pa.types.is_binary(leaf_type)]


def _feature(column: Column, labels: Sequence[str] | None) -> dict[str, Any]:
    if column.labels is not None:
        return {"names": list(labels or column.labels), "_type": "ClassLabel"}
    return _feature_of(column.type)


_DTYPES = {pa.string(): "string", pa.bool_(): "bool", pa.binary(): "binary", pa.int32(): "int32", pa.int64(): "int64"}


def _feature_of(kind: pa.DataType) -> dict[str, Any]:
    """Return the ``datasets`` feature of an Arrow type, as ``Features.to_dict`` would write it."""
    if kind == IMAGE:
        return {"_type": "Image"}
    if isinstance(kind, pa.StructType):
        return {field.name: _feature_of(field.type) for field in kind}
    if isinstance(kind, pa.ListType):
        return {"feature": _feature_of(kind.value_type), "_type": "List"}
    return {"dtype": _DTYPES.get(kind, "float64"), "_type": "Value"}


EPISODES = TableSchema(
    "episodes",
    "One row a rollout.",
    (
        Column("episode_id", pa.string(), "Versioned hash of the inputs of the episode, never of its results."),
        Column("run_id", pa.string(), "Digest of seed, rollouts a task and policy: groups never cross it."),
        Column("env", pa.string(), "Environment name, such as `sokoban`."),
        Column("env_version", pa.string(), "Version of the environment's rules and pictures."),
        Column(
            "env_config",
            pa.string(),
            "Settings of the environment that decide its episodes, JSON; `run.json` has all of them.",
        ),
        Column("backend", pa.string(), "`embedded`, or the simulator that ran."),
        Column("task_id", pa.string(), "Level: environment, digest of its settings, seed."),
        Column("goal_idx", pa.int32(), "Which goal of the level."),
        Column("eval_set", pa.string(), "Split of the task set, where there is one."),
        Column("seed", pa.int64(), "Seed that really made the level."),
        Column("group_id", pa.string(), "Equal for the rollouts of one prompt key under one policy."),
        Column("sample_idx", pa.int32(), "Index of the rollout within its task."),
        Column("instruction", pa.string(), "What the agent was asked to do."),
        Column("state_format", pa.string(), "How to read `initial_state`."),
        Column("initial_state", pa.string(), "Level text; re-executing `actions` from it reproduces every state."),
        Column("horizon", pa.int32(), "T_max, the turn budget."),
        Column("num_steps", pa.int32(), "T, the realised number of steps."),
        Column("actions", STRINGS, "Normalised action names, one a step."),
        Column("rewards", pa.list_(pa.float64()), "Rewards, one a step."),
        Column("episode_return", pa.float64(), "Undiscounted sum of rewards."),
        Column("status", pa.string(), "`complete`, `truncated` (imports) or `error`."),
        Column("success", pa.bool_(), "Success bit; null unless complete."),
        Column("failed", pa.bool_(), "Whether the episode failed; null unless complete."),
        Column("stop_reason", pa.string(), "`success`, `lost`, `horizon`, `policy_error` or `env_error`."),
        Column("error", pa.string(), "What went wrong, for status `error`."),
        Column("policy", pa.string(), "Policy name; `scripted` is an embedded stand-in for a model."),
        Column("policy_config", pa.string(), "Model, revision and sampling of the policy, JSON."),
    ),
)

STEPS = TableSchema(
    "steps",
    "One row a turn.",
    (
        Column("episode_id", pa.string(), "Episode."),
        Column("t", pa.int32(), "Step index, 0-based."),
        Column("prompt_hash", pa.string(), "Key into `prompts`."),
        Column("observation_text", pa.string(), "Text part of the observation; empty where the image is all."),
        Column("response", pa.string(), "The policy's raw reply."),
        Column("finish_reason", pa.string(), "Why generation ended: `stop` or `length`."),
        Column("response_token_ids", pa.list_(pa.int32()), "Reply tokens; null where the engine gives none."),
        Column("response_logprobs", pa.list_(pa.float64()), "Their log-probabilities; null where there are none."),
        Column("action", pa.string(), "Normalised action, or the environment's word for an unusable reply."),
        Column("payload", pa.string(), "Parsed arguments of the action, JSON."),
        Column("action_valid", pa.bool_(), "Whether the reply kept the whole format."),
        Column("moved", pa.bool_(), "Whether the action changed the agent's position, where that makes sense."),
        Column("reward", pa.float64(), "Reward of the step."),
        Column("remaining_turns", pa.int32(), "k_t: turns left after the step."),
        Column("frame_id", pa.string(), "Frame before the action."),
        Column("next_frame_id", pa.string(), "Frame after it."),
        Column("info", pa.string(), "Log fields after the action, JSON."),
        Column(
            "score_parts",
            pa.string(),
            "What the score is made of, such as DINO and DreamSim apart, JSON; null where nothing was scored.",
        ),
        Column("snapshot", pa.binary(), "Simulator state, only where re-execution is not exact."),
    ),
)

FRAMES = TableSchema(
    "frames",
    "One row a distinct frame of a shard.",
    (
        Column("frame_id", pa.string(), "SHA-256 over shape and decoded RGB."),
        Column("width", pa.int32(), "Pixels."),
        Column("height", pa.int32(), "Pixels."),
        Column("format", pa.string(), "`png` or `jpeg`."),
        Column("byte_size", pa.int64(), "Length of `image`."),
        Column("image", pa.binary(), "Encoded picture."),
    ),
)

PROMPTS = TableSchema(
    "prompts",
    "One row a distinct rendered prompt of a shard.",
    (
        Column("prompt_hash", pa.string(), "Digest of `messages`."),
        Column("template", pa.string(), "Template name."),
        Column("version", pa.string(), "Template version."),
        Column("messages", pa.string(), "Chat messages, JSON; images are named by frame_id."),
    ),
)

CALLS = TableSchema(
    "calls",
    "One row a request to a policy or teacher. The one table that may differ between equal runs.",
    (
        Column("request_id", pa.string(), "Digest of episode, step and role."),
        Column("episode_id", pa.string(), "Episode."),
        Column("t", pa.int32(), "Step; null for a request about the whole episode."),
        Column("role", pa.string(), "`student` or `teacher`."),
        Column("attempts", pa.int32(), "Tries until an answer came."),
        Column("latency", pa.float64(), "Seconds."),
        Column("prompt_tokens", pa.int64(), "Usage, where the server reports it."),
        Column("completion_tokens", pa.int64(), "Usage, where the server reports it."),
        Column("cost", pa.float64(), "Cost in the server's currency, where known."),
        Column("cache_hit", pa.bool_(), "Whether the answer came from the call cache."),
        Column("model_revision", pa.string(), "Revision that answered, where known."),
    ),
)

LABELS = TableSchema(
    "labels",
    "One row a failed, complete episode and label version; rejected labels are kept with all their reasons.",
    (
        Column("episode_id", pa.string(), "Episode."),
        Column("label_version", pa.string(), "`1` for a new store; `pivot relabel` counts on."),
        Column("pivot_step", pa.int32(), "t*; null where the solver has no answer."),
        Column("failure_mode", pa.string(), "m*; null where the solver has no answer."),
        Column("secondary_modes", STRINGS, "Other modes that also fit."),
        Column("fallback", pa.bool_(), "No action was fatal; t* = T-1 by convention."),
        Column("infeasible_at_start", pa.bool_(), "The goal was out of budget before any action."),
        Column("certificate", CERTIFICATE, "The facts that prove the label."),
        Column("witness", STRINGS, "Plan that still solved the task from s_{t*}; null where there is none."),
        Column("feasible_actions", STRINGS, "Actions at s_{t*} that kept the goal within budget."),
        Column("failure_reason", pa.string(), "Guidance r*; empty without any."),
        Column("target", pa.string(), "The Analyzer's answer, JSON."),
        Column("accepted", pa.bool_(), "Whether the record passed every filter."),
        Column("proved", pa.bool_(), "Whether an independent prover agreed; null for an unproved label."),
        Column(
            "reject_reasons",
            pa.list_(REJECTION),
            "Every reason against it: rule, kind and detail.",
        ),
        Column("solver", pa.string(), "Solver that proved the label."),
        Column("solver_version", pa.string(), "Its version."),
        Column("solver_config", pa.string(), "Solver settings, JSON."),
        Column("teacher", pa.string(), "Who wrote the guidance; `template` is an embedded stand-in. Null for none."),
        Column("teacher_config", pa.string(), "Version, model, revision and sampling of the teacher, JSON."),
        Column("teacher_prompt_hash", pa.string(), "What the teacher was shown; null for one that reads no prompt."),
        Column("prompt_hash", pa.string(), "Digest of the Analyzer prompt with its collage."),
        Column("image_hashes", STRINGS, "Names of the pictures that the prompt shows: the collage."),
    ),
)

DATASET = TableSchema(
    "dataset",
    "What a trainer loads: one row an accepted failure.",
    (
        Column("episode_id", pa.string(), "Episode in the store."),
        Column("env", pa.string(), "Environment name."),
        Column("env_config", pa.string(), "Settings of the environment, JSON; for svg they name the scorer."),
        Column("task_id", pa.string(), "Level."),
        Column("goal_idx", pa.int32(), "Which goal of the level."),
        Column("eval_set", pa.string(), "Split of the task set, where there is one."),
        Column("images", pa.list_(IMAGE), "The step-labelled collage."),
        Column("panel", IMAGE, "Tiles before, at and after the pivot step; for svg the drawings, never the target."),
        Column("prompt", MESSAGES, "Analyzer prompt, TRL conversational parts."),
        Column("completion", MESSAGES, "Target JSON as the assistant's turn."),
        Column("pivot_step", pa.int32(), "t*, 0-based."),
        Column("failure_mode", pa.string(), "m*, the certificate's word; targets may use the paper's for svg."),
        Column("failure_mode_id", pa.int64(), "m* as a class label.", FAILURE_MODES),
        Column("failure_reason", pa.string(), "Guidance r*; empty without any."),
        Column("actions", STRINGS, "Normalised action names, one a step."),
        Column("action_log", pa.string(), "Compact log, one line a step."),
        Column("initial_state", pa.string(), "Level text."),
        Column("horizon", pa.int32(), "T_max."),
        Column("num_steps", pa.int32(), "T."),
        Column("episode_return", pa.float64(), "Undiscounted return."),
        Column("certificate", CERTIFICATE, "The facts that prove the label."),
        Column("proved", pa.bool_(), "Whether an independent prover agreed; null for an unproved label."),
        Column("witness", STRINGS, "Plan that still solved the task from s_{t*}."),
        Column("infeasible_at_start", pa.bool_(), "The goal was out of budget before any action."),
        Column("policy", pa.string(), "Who acted; `scripted` is an embedded stand-in for a model."),
        Column("teacher", pa.string(), "Who wrote the guidance; `template` is an embedded stand-in."),
        Column("solver", pa.string(), "Who proved the label."),
        Column("prompt_hash", pa.string(), "Digest of the Analyzer prompt with its collage."),
    ),
)

DATASET_EPISODES = TableSchema(
    "dataset_episodes",
    "Whole episodes, successes too: one row an episode, frames in order.",
    (
        Column("episode_id", pa.string(), "Episode in the store."),
        Column("env", pa.string(), "Environment name."),
        Column("env_config", pa.string(), "Settings of the environment, JSON; for svg they name the scorer."),
        Column("task_id", pa.string(), "Level."),
        Column("goal_idx", pa.int32(), "Which goal of the level."),
        Column("eval_set", pa.string(), "Split of the task set, where there is one."),
        Column("group_id", pa.string(), "Equal for the rollouts of one prompt key under one policy."),
        Column("sample_idx", pa.int32(), "Index of the rollout within its task."),
        Column("instruction", pa.string(), "What the agent was asked to do."),
        Column("images", pa.list_(IMAGE), "Frames o_0..o_T in order, the terminal one last."),
        Column("actions", STRINGS, "Normalised action names, one a step."),
        Column("responses", STRINGS, "Raw replies, one a step."),
        Column("rewards", pa.list_(pa.float64()), "Rewards, one a step."),
        Column("initial_state", pa.string(), "Level text."),
        Column("horizon", pa.int32(), "T_max."),
        Column("num_steps", pa.int32(), "T."),
        Column("episode_return", pa.float64(), "Undiscounted return."),
        Column("success", pa.bool_(), "Success bit."),
        Column("failed", pa.bool_(), "Whether the episode failed."),
        Column("policy", pa.string(), "Who acted; `scripted` is an embedded stand-in for a model."),
    ),
)

STORE_TABLES = (EPISODES, STEPS, FRAMES, PROMPTS, CALLS)
"""Tables written by the rollout stage."""

ALL_TABLES = (*STORE_TABLES, LABELS, DATASET, DATASET_EPISODES)
