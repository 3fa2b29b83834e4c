"""Check stored rows where they are read, so that the code behind meets no cell that its type excludes.

A file can have the right columns and wrong cells: nulls where a record has none, texts that are not UTF-8, a label
that names a step which its episode does not have. ``pivot verify`` finds all of them; a reader stops at the first.
"""

from collections.abc import Mapping, Sized
from typing import Any

import pyarrow as pa
import pyarrow.compute

from ...core.errors import StoreError
from .schema import EPISODES, LABELS, TableSchema

pc: Any = pyarrow.compute  # its functions are made when it is imported, unseen by a type checker

VERIFY = "see what else is wrong with: pivot verify"

_OF_ACCEPTED = ("pivot_step", "failure_mode")
"""Columns that an accepted label has, and others may lack."""


def check_rows(address: str, schema: TableSchema, table: pa.Table, root: object, env: str | None = None) -> None:
    """Check the cells of a table, as far as one row tells.

    Args:
        address: its file, for messages.
        schema: its columns; ``table`` may have some of them.
        table: the rows.
        root: the store, for messages.
        env: environment of all rows, where the file belongs to one.

    Raises:
        StoreError: a cell is not one of its column.
    """
    problem = _problem(schema, table, env)
    if problem is not None:
        raise StoreError(f"{address}: {problem}; {VERIFY} {root}")


def _problem(schema: TableSchema, table: pa.Table, env: str | None) -> str | None:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        return f"a cell cannot be read ({error})"
    present = set(table.column_names)
    for column in schema.columns:
        if column.required and column.name in present and table[column.name].null_count:
            return f"column {column.name} holds nulls, expected a value in every row"
    if schema is LABELS and "pivot_step" in present:
        least = pc.min(table["pivot_step"]).as_py()
        if least is not None and least < 0:
            return f"a label has the pivot step {least}, expected none below 0"
    if schema is LABELS and "accepted" in present:
        for name in present.intersection(_OF_ACCEPTED):
            if pc.any(pc.and_(table["accepted"], table[name].is_null())).as_py():
                return f"column {name} of an accepted label is null, expected a value"
    if schema is EPISODES and env is not None and "env" in present:
        other = next((name for name in table["env"].unique().to_pylist() if name != env), None)
        if other is not None:
            return f"an episode has the environment {other!r}, expected {env!r}"
    return None


def check_steps(episode: Mapping[str, Any], steps: Sized, label: Mapping[str, Any] | None = None) -> None:
    """Check that an episode has a step per action, and the one that its label names.

    Raises:
        StoreError: a step is missing.
    """
    name, count = episode["episode_id"], len(steps)
    if len(episode["actions"]) != count:
        raise StoreError(f"episode {name} has {len(episode['actions'])} actions and {count} steps; {VERIFY}")
    pivot = None if label is None else label["pivot_step"]
    if pivot is not None and not 0 <= pivot < max(1, count):
        raise StoreError(f"the label of episode {name} names step {pivot}, expected one of its {count} steps; {VERIFY}")
