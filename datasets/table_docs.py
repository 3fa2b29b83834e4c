"""The column reference of ``docs/store.md``, made from the schema so that it cannot rot.

``python -m pivot.datasets.table_docs docs/store.md`` writes the part of the page below its marker anew. A test holds
the committed page against it, and the columns of the views against what DuckDB says.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from ..solvers.base import Certificate
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
from .views import VIEWS

MARKER = "<!-- Everything below is made by: python -m pivot.datasets.table_docs docs/store.md -->\n"

_FOLDERS = {
    LABELS: "`labels/v<N>/<environment>/<shard>.parquet`, N counted up by `pivot relabel`",
    PROMPTS: "`prompts/<environment>/<shard>.parquet`, beside them with `-labels-v<N>` those of Analyzer and teacher",
    CALLS: "`calls/<environment>/<shard>.parquet`, beside them with `-labels-v<N>` those of a teacher that is a model",
    DATASET: "`dataset/<environment>/<side>-<shard>.parquet`",
    DATASET_EPISODES: "`dataset/<environment>_episodes/<side>-<shard>.parquet`",
}

VIEW_DOCS: dict[str, tuple[str, dict[str, str]]] = {
    "episodes": ("The table `episodes`, all shards.", {}),
    "steps": ("The table `steps`, all shards.", {}),
    "prompts": ("The table `prompts`, all shards: Student, Analyzer and teacher prompts.", {}),
    "labels": ("The table `labels` in its current version, all shards.", {}),
    "failures": ("Every label with its episode: the columns of `labels`, then those of `episodes`.", {}),
    "blocks": (
        "The complete rollouts of one prompt key in order of sample index, cut into blocks of eight, never across "
        "runs, policies or settings. Episodes that ended in an error are in none.",
        {
            "env": "Environment name.",
            "run_id": "Run.",
            "group_id": "Prompt key under one policy and its settings.",
            "block": "Number of the block within the prompt key, from 0.",
            "task_id": "Level.",
            "goal_idx": "Which goal of the level.",
            "eval_set": "Split of the task set.",
            "policy": "Who acted.",
            "rollouts": "Episodes in the block.",
            "whole": "Whether these are eight.",
            "successes": "Episodes that succeeded.",
            "all_fail": "Whether none did.",
            "sigma0": "Whether all returns agree when rounded to 8 decimals.",
            "mean_return": "Mean of the returns.",
            "std_return": "Population standard deviation of the returns.",
        },
    ),
    "groups": ("The whole blocks: what group statistics are taken over. Columns as in `blocks`.", {}),
    "group_rates": (
        "One row an environment, and a row `pooled` over all groups.",
        {
            "env": "Environment name, or `pooled`.",
            "episodes": "Complete episodes.",
            "success_rate": "Share of them that succeeded.",
            "groups": "Whole groups.",
            "short_blocks": "Blocks of fewer than eight, which count nowhere.",
            "all_fail_rate": "Share of the groups without a success.",
            "sigma0_rate": "Share of the groups whose eight returns agree.",
        },
    ),
    "modes_by_step": (
        "How often a mode was pinned to a step; rejected labels count too.",
        {
            "env": "Environment name.",
            "failure_mode": "m*.",
            "pivot_step": "t*.",
            "failures": "Labels with this mode and step.",
            "share": "Their share of the environment's labels that have a mode.",
        },
    ),
    "bound_quality": (
        "How good an inexact certificate is where a better reference stands beside it: one row an environment and kind "
        "of reference; rejected labels count too.",
        {
            "env": "Environment name.",
            "kind": "Kind of the certificate.",
            "reference": "Kind of the reference.",
            "failures": "Labels that have both.",
            "agreeing": "Labels whose pivot step is the reference's.",
            "agreement": "Their share.",
            "earlier": "Labels whose pivot step comes before the reference's, as a heuristic's may.",
            "later": "Labels whose pivot step comes after it.",
            "mean_delay": "Mean number of steps by which the label's pivot is later than the reference's.",
            "mean_gap": (
                "Mean of `reference_before - before`, where the goal is within reach: what the certificate misses, in "
                "turns (a stage counts as one)."
            ),
        },
    ),
    "rejects": (
        "One row for every reason against a rejected label.",
        {
            "env": "Environment name.",
            "episode_id": "Episode.",
            "task_id": "Level.",
            "failure_mode": "m*, null without a verdict.",
            "pivot_step": "t*, null without a verdict.",
            "name": "The rule that rejected it.",
            "kind": "What kind of thing it found.",
            "detail": "What the rule found.",
        },
    ),
}
"""Meaning of every view, and of the columns that no table declares."""


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
    rows = [(f"`{column.name}`", _column_type(column), column.doc) for column in schema.columns]
    return f"### {schema.name}\n\n{schema.doc} Files: {folder}.\n\n" + _rows(("column", "type", "meaning"), rows)


def _view_section(name: str) -> str:
    doc, columns = VIEW_DOCS[name]
    head = f"### View {name}\n\n{doc}"
    rows = [(f"`{column}`", meaning) for column, meaning in columns.items()]
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
    """Return a page with everything below its marker made anew."""
    head, _, _ = page.partition(MARKER)
    return f"{head}{MARKER}\n{reference()}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_reference(target.read_text(encoding="utf-8")), encoding="utf-8")
