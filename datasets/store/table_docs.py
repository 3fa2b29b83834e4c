"""The column reference of ``docs/reference/store.md``, made from the schema so that it cannot rot.

``python -m pivot.datasets.store.table_docs docs/reference/store.md`` rewrites the page below its marker. A test
compares the committed page with it, and the columns of the views with DuckDB's.
"""

import sys
from collections import Counter
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

_BASE_VIEWS = {
    "frames": "every frame once",
    "prompts": "every prompt once: those of Student, Analyzer and teacher",
    "calls": "requests to a policy, and to a teacher for the current labels",
    "labels": "in its current version",
}
"""Views of one table each that say more than that they hold all of its shards."""
SHARED = 3
"""Views from which on a column with one meaning is described once for all of them."""


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
    """Return the section of a table; columns that an earlier table describes are named alone."""
    folder = _FOLDERS.get(schema, f"`{schema.name}/<environment>/<shard>.parquet`")
    earlier = ALL_TABLES[: ALL_TABLES.index(schema)]
    rows: list[tuple[str, str, str]] = []
    described: dict[str, list[str]] = {}
    for column in schema.columns:
        table = next((each.name for each in earlier if column in each.columns), "")
        if table:
            described.setdefault(table, []).append(f"`{column.name}`")
        else:
            rows.append((f"`{column.name}`", _column_type(column), column.doc))
    also = [f"As in `{table}`: {', '.join(columns)}." for table, columns in described.items()]
    head = f"### {schema.name}\n\n{schema.doc} Files: {folder}."
    return "\n\n".join([head, _rows(("column", "type", "meaning"), rows), *also])


def _shared_columns() -> dict[str, str]:
    """Return the columns that mean the same in many views."""
    counted = Counter((name, doc) for view in DERIVED.values() for name, doc in view.columns.items())
    return {name: doc for (name, doc), views in counted.items() if views >= SHARED}


def _view_section(name: str) -> str:
    """Return the section of a derived view without the columns that many views have."""
    view, shared = DERIVED[name], _shared_columns()
    head = f"### View {name}\n\n{view.doc}"
    lines = [f"- `{column}`: {doc}" for column, doc in view.columns.items() if shared.get(column) != doc]
    also = [f"`{column}`" for column, doc in view.columns.items() if shared.get(column) == doc]
    parts = [head, f"Also: {', '.join(also)}." if also else "", "\n".join(lines)]
    return "\n\n".join(part for part in parts if part)


def _base_views() -> str:
    """Return the sections of the views of one table each, and of the columns that many views have."""
    plain = [f"`{name}`" for name in VIEWS if name not in DERIVED and name not in _BASE_VIEWS]
    lines = [f"- `{name}`: {text}." for name, text in _BASE_VIEWS.items()]
    shared = [f"- `{column}`: {doc}" for column, doc in _shared_columns().items()]
    return "\n\n".join(
        [
            f"The views {', '.join(plain)} and the following show all shards of the table of that name:",
            "\n".join(lines),
            "Columns that many views have:",
            "\n".join(shared),
        ]
    )


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
        _base_views(),
        *(_view_section(name) for name in VIEWS if name in DERIVED),
    ]
    return "\n\n".join(sections) + "\n"


def with_reference(page: str) -> str:
    """Return a page with the text below its marker rewritten."""
    head, _, _ = page.partition(MARKER)
    return f"{head}{MARKER}\n{reference()}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_reference(target.read_text(encoding="utf-8")), encoding="utf-8")
