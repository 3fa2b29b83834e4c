"""The column reference of ``docs/reference/store.md``, made from the schema so that it cannot rot.

``python -m pivot.datasets.store.table_docs docs/reference/store.md`` rewrites the page below its marker. A test
compares the committed page with it, and the columns of the views with DuckDB's.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from ...solvers.base import Certificate
from ..sql.derived_views import DERIVED
from ..sql.views import VIEWS
from .schema import (
    ALL_TABLES,
    CALLS,
    CERTIFICATE,
    DATASET,
    DATASET_EPISODES,
    IMAGE,
    LABELS,
    MESSAGES,
    PROMPTS,
    Column,
    TableSchema,
    columns_of,
)

MARKER = "<!-- Everything below is made by: python -m pivot.datasets.store.table_docs docs/reference/store.md -->\n"

_FOLDERS = {
    LABELS: "`labels/v<N>/<environment>/<shard>.parquet`, N incremented by `pivot relabel`",
    PROMPTS: (
        "`prompts/<environment>/<shard>.parquet`; those of Analyzer and teacher in `<shard>-labels-v<N>.parquet` "
        "in the same folder"
    ),
    CALLS: (
        "`calls/<environment>/<shard>.parquet`; those of a teacher that is a model in `<shard>-labels-v<N>.parquet` "
        "in the same folder"
    ),
    DATASET: "`dataset/<environment>/<side>-<shard>.parquet`",
    DATASET_EPISODES: "`dataset/<environment>_episodes/<side>-<shard>.parquet`",
}

REWORDED = {
    "Compact log as the prompt shows it, one line a step.": "Compact log as the prompt shows it, one line per step.",
    "Equal for the rollouts of one prompt key under one policy.": (
        "Id of a prompt key under one policy: equal for the rollouts of a task."
    ),
    "Level text; re-executing `actions` from it reproduces every state.": (
        "Text of the level; re-executing `actions` from it reproduces every state."
    ),
    "Level: environment, digest of its settings, seed.": (
        "Id of the level: environment, digest of its settings, seed. A level may have several tasks, which differ in "
        "`goal_idx`, `eval_set` or instruction."
    ),
    "Normalised action names, one a step.": "Normalised action names, one per step.",
    "Plan that still solved the task from s_{t*}; null where there is none.": (
        "Plan that still solved the task from s_{t*}; null if there is none."
    ),
    "Policy name; `scripted` is an embedded stand-in for a model.": (
        "Policy name; `scripted` is built in, in place of a model."
    ),
    "Raw replies, one a step.": "Raw replies, one per step.",
    "Rewards, one a step.": "Rewards, one per step.",
    "Settings of the environment that decide its episodes (for svg the scorer, too), JSON; `run.json` has all.": (
        "Settings of the environment that affect its episodes (for svg also the scorer), JSON; all settings are in "
        "`run.json`."
    ),
    "Solver that proved the label, and its version.": "Solver that found the label, and its version.",
    "Split of the task set, where there is one.": "Split of the task set, if it has splits.",
    "Success bit; null unless complete.": "Whether the episode succeeded; null unless complete.",
    "The facts that prove the label.": "The facts behind the label; those of kind `exact` prove it.",
    "The goal was out of budget before any action.": "Whether the goal was out of budget before any action.",
    "What the agent was asked to do.": "Task in words, as the agent's prompt states it.",
    "Which goal of the level.": "Index of the goal.",
    "Who wrote the guidance; `template` is an embedded stand-in. Null for none.": (
        "Writer of the guidance; `template` is built in, in place of a model. Null without guidance."
    ),
    "`1` for a new store; `pivot relabel` counts on.": "`1` for a new store; `pivot relabel` increments it.",
}
"""Wording on the page of columns whose own text is in stored cards, which ``pivot verify`` compares with it."""

_BASE_VIEWS = {
    "episodes": "The table `episodes`, all shards.",
    "steps": "The table `steps`, all shards.",
    "frames": "The table `frames`, all shards, every frame once.",
    "prompts": "The table `prompts`, all shards, every prompt once: those of Student, Analyzer and teacher.",
    "calls": "The table `calls`, all shards: requests to a policy, and to a teacher for the current labels.",
    "labels": "The table `labels` in its current version, all shards.",
}


def type_name(kind: pa.DataType) -> str:
    """Name a column type for readers."""
    if kind == IMAGE:
        return "image"
    if kind == MESSAGES:
        return "messages"
    if kind == CERTIFICATE:
        return "certificate"
    if isinstance(kind, pa.ListType):
        return f"list of {type_name(kind.value_type)}"
    if isinstance(kind, pa.StructType):
        return "{" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + "}"
    return {"double": "float64"}.get(str(kind), str(kind))


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _column_type(column: Column) -> str:
    return "class label" if column.labels is not None else type_name(column.type)


def _table_section(schema: TableSchema) -> str:
    folder = _FOLDERS.get(schema, f"`{schema.name}/<environment>/<shard>.parquet`")
    rows = [
        (f"`{column.name}`", _column_type(column), REWORDED.get(column.doc, column.doc)) for column in schema.columns
    ]
    return f"### {schema.name}\n\n{schema.doc} Files: {folder}.\n\n" + _rows(("column", "type", "meaning"), rows)


def _view_section(name: str) -> str:
    if name in _BASE_VIEWS:
        return f"### View {name}\n\n{_BASE_VIEWS[name]}"
    view = DERIVED[name]
    head = f"### View {name}\n\n{view.doc}"
    rows = [(f"`{column}`", meaning) for column, meaning in view.columns.items()]
    return head + "\n\n" + _rows(("column", "meaning"), rows) if rows else head


def reference() -> str:
    """Return the reference of all tables and views, Markdown."""
    certificate = _rows(
        ("field", "type", "meaning"),
        [(f"`{column.name}`", type_name(column.type), column.doc) for column in columns_of(Certificate)],
    )
    sections = [
        "## Tables",
        *map(_table_section, ALL_TABLES),
        "### The certificate\n\nA struct of `labels` and `dataset`.\n\n" + certificate,
        "## Views",
        *map(_view_section, VIEWS),
    ]
    return "\n\n".join(sections) + "\n"


def with_reference(page: str) -> str:
    """Return a page with the text below its marker rewritten."""
    head, _, _ = page.partition(MARKER)
    return f"{head}{MARKER}\n{reference()}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_reference(target.read_text(encoding="utf-8")), encoding="utf-8")
